"""What the commands of scripts/ share."""
