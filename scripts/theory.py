"""What `normscope predict` says of a run's config: its layers before any training."""

import csv
import functools
import io
import os

from runs import PlotError, ask, np, printable


class NoPrediction(PlotError):
    """The theory has no answer for this config."""


@functools.cache
def predicted(folder):
    """{"rms", "grad"}: of the stream, arrays of layers 0 … L."""
    done = ask("predict", os.path.join(".", folder, "config.json"), "--csv", purpose="knows the theory")
    if done.returncode != 0:
        why = printable((done.stderr.decode("utf-8", "replace").splitlines() or ["it ended without a word"])[-1])
        start = "[predict] no prediction: "
        if why.startswith(start):
            raise NoPrediction(why.removeprefix(start))
        raise PlotError(f"{printable(folder)}: {why}", 1)
    rows = [row for row in csv.DictReader(io.StringIO(done.stdout.decode())) if row["site"] == "stream"]
    return {site: np.array([float(row[column]) for row in rows]) for site, column in (("rms", "rms"), ("grad", "grad_rms"))}
