"""The laws of signal propagation at initialisation: what a resolved config says of every layer before any training.

Mean squares. Weights are independent draws of mean 0, so at the start a sublayer's output is uncorrelated with what it
joins, and mean squares add. A sublayer multiplies the mean square that it reads by its gain. At context 1 attention is
only its value and output matrices; half of the mean square passes a ReLU. With Var the variance of an entry, F = d_ff:
  attention  C Var(v) · C Var(out)
  FFN        C Var(in) · 1/2 · F Var(out)
With Xavier's Var = 2 / (fan-in + fan-out) and F = rC these are 1 and b = 2r/(1+r)². A norm gives m/(m + ε), nearly 1.
Block by block then, m being the mean square of x:
  pre 1 + (1+b)l · pre_scaled 1 + (1+b)(1 + 1/2 + … + 1/l) · sandwich, peri, res_post 1 + 2l · norms on the sum 1
  rezero 1 (its scales start at 0) · none ((1+1)(1+b))^l · mix and lists: each block the step of its own placement
x_0 is the embeddings' embed_std², with learned positions twice that, with sinusoids 1/2 more, and 1 after peri's norm.
Sources: Xiong et al. 2020 (2002.04745), section 3; Sun et al. 2025 (2502.05795); He et al. 2015 for ReLU's half.

Gradients. The same gain multiplies the squared norm of a gradient on its way back through the sublayer (C Var(out) ·
1/2 · F Var(in) is the same product), and a norm divides it by the mean square that it read. So the squared gradient
shrinks by the very factor by which the mean square grew, in each placement:
  pre                      m' = m + g         |dx|² = |dy|² (1 + g/m)
  sandwich, peri, res_post m' = m + 1         |dx|² = |dy|² (1 + 1/m): the branch's norm has divided by what g gave it
  post                     m' = 1             |dx|² = |dy|² (1 + g) / (m + gm)
  none                     m' = m(1 + g)      |dx|² = |dy|² (1 + g)
rms(x_l)·|dL/dx_l| is the same at every layer, on average over the weights, whatever the loss; its scale the law leaves
open. It needs a wide stream: what a norm takes out and how rms(x) varies from token to token are of order 1/C a block.
At L = 30, over 16 seeds, |dL/dx_0| is 1.10 (post) and 1.03 (pre) of the law at C = 256, 1.76 and 1.11 at C = 64.
"""

import math

from keys import NORMS, PLACEMENTS, factor
from sites import placements

HALF = 0.5  # what a ReLU lets pass of the mean square of a symmetric input
WIDE = 8  # from this C/L the gradients of post are within about an eighth of their law, the other figures nearer


def mean_square(model):
    """The law of the mean square of x_0 … x_L, from the `model` part of a resolved config; a list."""
    depth = model["n_layer"]
    blocks = placements(model, depth)
    m = embedding_mean_square(model)
    law = [_normed(m, model) if PLACEMENTS[blocks[0][0]]["embed_norm"] else m]
    for block, block_placements in enumerate(blocks, start=1):
        m = law[-1]
        for gain, placement in zip(gains(model), block_placements):
            m = _after_sublayer(m, gain, PLACEMENTS[placement], block, model)
        law.append(m)
    return law


def _after_sublayer(m, gain, row, block, model):
    """The mean square after a sublayer of this gain and its sum, by the row of its block's placement."""
    alpha, beta = factor(row["alpha"], model["n_layer"]), factor(row["init_gain"], model["n_layer"])
    added = _normed(m, model) if row["norm_in"] else m
    added *= gain * beta ** 4 * factor(row["input_scale"], block) ** 2
    if row["learned_scale"]:
        added = 0.0
    if row["norm_branch"]:
        added = _normed(added, model)
    total = added + (alpha ** 2 * m if model["residual"] else 0)
    return _normed(total, model) if row["norm_out"] else total


def gradient(model):
    """The law of |dL/dx_l| over |dL/dx_L|, l = 0 … L: rms(x_l) |dL/dx_l| is the same at every layer; a list."""
    law = mean_square(model)
    return [math.sqrt(law[-1] / m) if 0 < m < math.inf else math.nan for m in law]


def gains(model):
    """What attention (at context 1) and the FFN (a ReLU's) multiply the mean square by that they read."""
    width, hidden = model["d_model"], model["d_ff"]
    init = model["init"]
    last = 1 / (2 * model["n_layer"]) if init["residual_scaling"] else 1  # of the variance of what writes the stream

    def variance(fan_out, fan_in):
        return {"xavier_normal": 2 / (fan_in + fan_out), "xavier_uniform": 2 / (fan_in + fan_out),
                "kaiming_normal": 2 / fan_in, "gpt2": init["std"] ** 2}[init["scheme"]]

    return (width * variance(width, width) * width * variance(width, width) * last,
            width * variance(hidden, width) * HALF * hidden * variance(width, hidden) * last)


def embedding_mean_square(model):
    """Of token and position together, before peri's norm. sin² and cos² are 1/2 on average."""
    return model["init"]["embed_std"] ** 2 * (2 if model["position"] == "learned" else 1) + (
        0.5 if model["position"] == "sinusoidal" else 0)


def _normed(m, model):
    """The mean square of what a norm makes of it: 1 but for its epsilon."""
    if model["norm"] == "none":
        return m
    epsilon = model["norm_eps"]
    root = math.sqrt(m) + epsilon if model["norm_eps_outside"] else math.sqrt(m + epsilon)
    return (math.sqrt(m) / root) ** 2 if 0 < root < math.inf else float(m > 0)


# ---- where a run is not what the laws are about -----------------------------------------------------------------


def broken(model, step=0, dropout=True, trained=False):
    """What the laws assume and this config is not, as a list of pairs (assumed, found); in the row of this step, which
    was logged with or without `dropout`, of weights known to be `trained` before. Not among them is what the laws
    allow for (initialisation, embed_std, d_ff, residual, learned positions, epsilon) and what has no effect at their
    setting: biases start at 0; at context 1 nothing depends on q and k, so neither on rope nor on qk_norm."""
    found = []
    if model["context"] > 1:
        found.append(("T = 1", f"T = {model['context']}"))
    if model["d_model"] < WIDE * model["n_layer"]:
        found.append((f"C ≥ {WIDE} L", f"C = {model['d_model']} and L = {model['n_layer']}"))
    if model["activation"] != "relu":
        found.append(("ReLU", model["activation"]))
    if model["norm"] != "none" and NORMS[model["norm"]]["over"] != "features":
        found.append((" or ".join(name for name, row in NORMS.items() if row["over"] == "features"), model["norm"]))
    if model["position"] == "sinusoidal":  # they have a mean, which layernorm takes away
        found.append(("no sinusoids", "sinusoidal"))
    if model["tie_embeddings"]:  # the gradient then comes back through what the stream began with
        found.append(("untied head", "tied"))
    if model["dropout"] > 0 and dropout:
        found.append(("no dropout", f"dropout {model['dropout']:g}"))
    if trained or step > 1:  # the row of step 1 is of the first weights
        found.append(("untrained weights", f"step {step}" if step else "trained"))
    return found


def in_words(lists):
    """One sentence of what `broken` found in each of some runs."""
    found = {}
    for pairs in lists:
        for assumed, text in pairs:
            found.setdefault(assumed, []).append(text)
    if not found:
        return "The law's assumptions hold here."

    def said(texts):
        distinct = list(dict.fromkeys(texts))
        return " or ".join(distinct if len(distinct) < 4 else [distinct[0], "…", distinct[-1]])

    everywhere = {assumed: texts for assumed, texts in found.items() if len(texts) == len(lists)}
    somewhere = {assumed: texts for assumed, texts in found.items() if assumed not in everywhere}
    here = [start + ", ".join(map(said, part.values())) for start, part in
            (("here ", everywhere), ("in some runs ", somewhere)) if part]
    return f"Law assumes {', '.join([*everywhere, *somewhere])}: {'; '.join(here)}."
