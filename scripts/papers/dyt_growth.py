"""How the gradient grows towards the input under Dynamic Tanh and under LayerNorm."""

import math

from papers.lib.experiment import (Claim, choices, crossed, depths, distance_from_law, growth_of_gradient,
                                   law_of_growth, probe)

DEPTHS = (6, 12, 24, 48, 96)
VARIANTS = crossed(choices("norm", "layernorm", "dyt"), depths(*DEPTHS))

RATIO = "logarithm of the gradient's growth, L 96 over L 24"


def run(config, out, quick):
    return probe(config, out, quick, VARIANTS, growth_of_gradient, law_of_growth)


def claims(probes):
    for norm in ("layernorm", "dyt"):
        distance = distance_from_law({depth: probes[f"{norm}, L {depth}"] for depth in DEPTHS})
        yield Claim(f"{norm}: growth of the gradient, largest distance from its law", distance, 0, 0.1)

    def ratio_of_logarithms(norm):
        deep, shallow = (math.log(probes[f"{norm}, L {depth}"].measured.mean()) for depth in (96, 24))
        return deep / shallow

    yield Claim(f"dyt: {RATIO} (law exp(c√L): 2)", ratio_of_logarithms("dyt"), 1.8, 2.4)
    yield Claim(f"layernorm: {RATIO} (law √(1 + 1.5 L): 1.38)", ratio_of_logarithms("layernorm"), 1.2, 1.5)
