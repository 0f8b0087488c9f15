"""What a run's folder holds. The room has the one import of numpy that finds another Python where it fails."""

from lib.base.system_python import restart

try:
    import numpy as np
except ImportError as error:
    restart(error, "install python3-matplotlib and python3-numpy")
