"""Closed laws of a fresh network: the stream, its gradient, what is left of the input, attention's entropy."""

import math
from operator import itemgetter

from papers.lib.experiment import (THEORY, Claim, Panel, config_of, distance_from_law, fresh, np, picture_of,
                                   placements, probe, stream, unit)

PLACEMENTS = placements("pre", "post", "deepnorm", "keel", "sandwich", "res_post", "hybrid")
ACTIVATIONS = {activation: {"norm_placement": "post", "activation": activation, "n_layer": 24}
               for activation in ("relu", "gelu", "silu", "swiglu")}
ATTENTION = {**placements("pre", "post", "sandwich", "res_post"), "pre, QK norm": {"qk_norm": "true"}}


def balance(run):
    """rms of x_l times that of its gradient, layers 0..L."""
    return stream(run, "rms") * stream(run, "grad_rms")


def cosine_with_input(run):
    """cos(x_0, x_l), mean over the tokens of a batch, layers 0..L."""
    streams = [unit(x) for x in fresh(run).streams]
    return [(streams[0] * x).sum(-1).mean() for x in streams]


def gradient_over_last(run):
    """The gradient's rms at x_l over that at x_L."""
    gradient = stream(run, "grad_rms")
    return gradient / gradient[-1]


def entropy(run):
    """The entropy of attention's weights in nats, mean over the heads, layers 1..L."""
    layers, values = run.rows("heads.csv", ("layer", "entropy")).T
    return [values[layers == layer].mean() for layer in np.unique(layers)]


def run(config, out, quick):
    return {"balance": probe(config, out, quick, PLACEMENTS, balance),
            "cosine": probe(config, out, quick, PLACEMENTS, cosine_with_input, itemgetter("share")),
            "gradient": probe(config, out, quick, ACTIVATIONS, gradient_over_last,
                              lambda theory: theory["grad"] / theory["grad"][-1]),
            "entropy": probe(config_of("theory"), out, quick, ATTENTION, entropy, itemgetter("entropy"))}


def claims(probes):
    products = [probed.measured for probed in probes["balance"].values()]
    ratios = [float((product[:, 0] / product[:, -1]).mean()) for product in products]
    farthest = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    yield Claim("rms of x times its gradient's, x_0 over x_L, the placement farthest from 1", farthest, 0.8, 1.2)
    yield Claim("cos(x_0, x_l): the worst layer of all placements, less its law",
                distance_from_law(probes["cosine"], relative=False), 0, 0.03)
    yield Claim("post, SwiGLU, L 24: |dx_0| over |dx_L| (law ((1 + 0.735)/(1 + 0.356))^12: 19)",
                probes["gradient"]["swiglu"].mean[0], 15, 25)
    yield Claim("post, ReLU, L 24: |dx_0| over |dx_L| (law 1)", probes["gradient"]["relu"].mean[0], 0.8, 1.25)
    yield Claim("entropy of attention: the worst block of all variants, from theory",
                distance_from_law(probes["entropy"]), 0, 0.1)


def picture(probes):
    return picture_of("Laws of a fresh network", [
        Panel("cos(x_0, x_l), T 1", "", probes["cosine"]),
        Panel("|dx_l| over |dx_L|, post, T 1", "", probes["gradient"], True),
        Panel("Attention's entropy, T 64", "nats", probes["entropy"], first=1)],
                      THEORY, points=True, second=["pre, QK norm"])
