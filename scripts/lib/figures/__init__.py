"""Pictures. The room has the one import of Matplotlib that finds another Python where it fails."""

import contextlib
import io
import logging
import os

from lib.base.system_python import is_running_a_script, restart

# Matplotlib inverts matrices of 3x3, after each of which threads of numpy's BLAS would spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if is_running_a_script():
    os.environ.pop("MPLBACKEND", None)  # of windows, which no script opens; an unknown one is an error of the import
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it reports its caches on a first start
try:
    # A numpy that Matplotlib was not built for explains itself in thirty lines before the error; matplotlib.transforms
    # is the first module to need the right one.
    with contextlib.redirect_stderr(io.StringIO()):
        import matplotlib.transforms
except ImportError as error:
    restart(error, "install python3-matplotlib and python3-numpy")
