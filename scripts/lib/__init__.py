"""What the scripts share. A script starts again in UTF-8 mode where it must, before anything slow is imported."""

from lib.system_python import restart_in_utf8

restart_in_utf8()
