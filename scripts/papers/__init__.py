"""The experiments of configs/papers. A module has the name of its config file; papers/lib/papers.py says what
it contains."""
