"""What theory expects of a run: its layers before any training."""

import functools
import os

from lib.keys import completed
from lib.mean_field import allowed, predict, resolved
from lib.runs import np


@functools.cache
def predicted(folder, narrow=False):
    """{"rms", "grad": of the stream, "share": cos(x_0, x_l), "tokens": cosine of two tokens, arrays of layers 0 … L; "entropy": of
    layers 1 … L; "amplification"; "limits": as `allowed` has them, of one seed}. `narrow`: also of a model too narrow for the theory."""
    config = resolved(os.path.join(".", folder, "config.json"))
    found = predict(config, narrow=narrow)
    rms, grad = np.array([values for (_, site), values in found.sites.items() if site == "stream"]).T
    return {"rms": rms, "grad": grad, "share": np.array([layer["input_cosine"] for layer in found.layers]),
            "tokens": np.array([layer["token_cosine"] for layer in found.layers]),
            "entropy": np.array([layer["entropy"] for layer in found.layers[1:]]), "amplification": found.amplification,
            "limits": dict(zip(("rms", "grad"), allowed(completed(config["model"]), 1)))}
