"""Code shared by the scripts. Importing it restarts a script in UTF-8 mode if the locale has another encoding, before
anything slow is imported."""

from lib.base.system_python import restart_in_utf8

restart_in_utf8()
