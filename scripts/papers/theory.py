"""Probes at T 64 on real text are compared with mean-field theory, which draws no weight."""

import math
from operator import itemgetter

from papers.lib.experiment import PLACED, THEORY, Claim, Panel, markdown, np, picture_of, placements, probe, stream

VARIANTS = {**placements("pre", "post", "sandwich", "res_post", "deepnorm", "keel", "hybrid", "subln"),
            "post, SwiGLU, L 24": {"norm_placement": "post", "activation": "swiglu", "n_layer": 24},
            "pre, RoPE, QK norm": {"position": "rope", "qk_norm": "true"}, "pre, DyT": {"norm": "dyt"},
            "res_post, DyT": {"norm_placement": "res_post", "norm": "dyt"},
            "post, DyT": {"norm_placement": "post", "norm": "dyt"},
            "pre, GPT-2's init, tied": {"init.scheme": "gpt2", "init.embed_std": 0.02, "tie_embeddings": "true"}}


def run(config, out, quick):
    return {"rms": probe(config, out, quick, VARIANTS, lambda run: stream(run, "rms"), itemgetter("rms")),
            "grad": probe(config, out, quick, VARIANTS, lambda run: stream(run, "grad_rms"), itemgetter("grad"))}


def root_mean_square(measured):
    """Over seeds, by layer."""
    return np.sqrt((measured ** 2).mean(axis=0))


def off_theory(probed):
    """(relative distance of the rms from theory, relative standard error of the rms by its seeds), means over the
    layers."""
    squares = probed.measured ** 2
    error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares)) / squares.mean(axis=0) / 2
    return float(np.abs(probed.law / root_mean_square(probed.measured) - 1).mean()), float(error.mean())


def worst_over_allowed(probes, limit):
    """The largest distance from theory over what is allowed: the limit, or two standard errors."""
    return max(distance / max(limit, 2 * error) for distance, error in map(off_theory, probes.values()))


def claims(probes):
    yield Claim("activation: largest distance from theory over the allowed one (2%, or two standard errors)",
                worst_over_allowed(probes["rms"], 0.02), 0, 1)
    yield Claim("gradient: largest distance from theory over the allowed one (5%, or two standard errors)",
                worst_over_allowed(probes["grad"], 0.05), 0, 1)


def table(probes):
    def percent(probed):
        distance, error = off_theory(probed)
        return f"{100 * distance:.1f}% ({100 * error:.1f})"

    lines = []
    for name, gradient in probes["grad"].items():
        measured, law = (values[0] / values[-1] for values in (root_mean_square(gradient.measured), gradient.law))
        lines.append([name, percent(probes["rms"][name]), percent(gradient), f"{measured:.3g} / {law:.3g}"])
    return markdown(["rms of the stream, off theory (seeds' standard error)", "activation", "gradient",
                     "gradient at x_0 over x_L / theory"], *lines)


def picture(probes):
    panels = [Panel(title, unit, {name: probed for name, probed in probes[site].items() if name in PLACED}, True)
              for site, title, unit in (("grad", "Gradient rms of the stream", "nats per unit"),
                                        ("rms", "Activation rms of the stream", "units"))]
    return picture_of("Before training: probes, and what theory expects of them", panels, THEORY, points=True)
