"""How the gradient grows towards the input under Dynamic Tanh and under LayerNorm."""

import math

from papers.lib.experiment import (Claim, choices, crossed, depths, distance_from_law, growth_of_gradient,
                                   law_of_growth, probe)

DEPTHS = (6, 12, 24, 48, 96)
VARIANTS = crossed(choices("norm", "layernorm", "dyt"), depths(*DEPTHS))


def run(config, out, quick):
    return probe(config, out, quick, VARIANTS, growth_of_gradient, law_of_growth)


def claims(probes):
    for norm in ("layernorm", "dyt"):
        distance = distance_from_law({depth: probes[f"{norm}, L {depth}"] for depth in DEPTHS})
        yield Claim(f"{norm}: growth of the gradient, largest distance from its law", distance, 0, 0.1)
    for norm, law, low, high in (("dyt", "exp(c√L): 2", 1.8, 2.4), ("layernorm", "√(1 + 1.5 L): 1.38", 1.2, 1.5)):
        deep, shallow = (math.log(probes[f"{norm}, L {depth}"].mean) for depth in (96, 24))
        yield Claim(f"{norm}: logarithm of the gradient's growth, L 96 over L 24 (law {law})", deep / shallow, low, high)
