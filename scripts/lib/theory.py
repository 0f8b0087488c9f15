"""What `normscope predict` says of a run's config: its layers before any training."""

import functools
import json
import os

from lib.runs import PlotError, ask, np, printable


class NoPrediction(PlotError):
    """The theory has no answer for this config."""


@functools.cache
def predicted(folder):
    """{"rms", "grad": of the stream, "share": cos(x_0, x_l), arrays of layers 0 … L; "entropy": of layers 1 … L; "amplification"}."""
    done = ask("predict", os.path.join(".", folder, "config.json"), "--json", purpose="knows the theory")
    if done.returncode != 0:
        why = printable((done.stderr.decode("utf-8", "replace").splitlines() or ["it ended without a word"])[-1])
        start = "[predict] no prediction: "
        if why.startswith(start):
            raise NoPrediction(why.removeprefix(start))
        raise PlotError(f"{printable(folder)}: {why}", 1)
    said = json.loads(done.stdout)
    rows = [row for row in said["sites"] if row["site"] == "stream"]
    return {"rms": np.array([row["rms"] for row in rows]), "grad": np.array([row["grad_rms"] for row in rows]),
            "share": np.array([layer["input_cosine"] for layer in said["layers"]]),
            "entropy": np.array([layer["entropy"] for layer in said["layers"][1:]]), "amplification": said["amplification"]}
