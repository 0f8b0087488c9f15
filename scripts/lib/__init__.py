"""Code shared by the scripts. Importing it prepares a script before anything slow is imported."""

from lib.base.system_python import begin

begin()
