"""He et al. 2016: the effect of residual connections on the gradient of the first block, and on learning."""

import math

from papers.lib.experiment import (Claim, Panel, Probed, config_of, crossed, depths, growth_of_gradient, law_of_growth,
                                   learns, loss_table, np, picture_of, probe, stays_at_unigram, sweep)

RESIDUALS = {"with residuals": {"residual": "true"}, "without": {"residual": "false"}}
DEPTHS = [2, 4, 8, 16, 32, 48]
GRADIENTS = crossed({"pre": {"norm_placement": "pre"}, "no norm": {"norm_placement": "none"}}, RESIDUALS)
GRADIENT = "the gradient before block 1 over after block 48"


def run(config, out, quick):
    variants = crossed(GRADIENTS, depths(*DEPTHS))
    gradient = probe(config_of("xiong"), out, quick, variants, growth_of_gradient, law_of_growth)
    return {"runs": sweep(config, out, quick), "gradient": gradient}


def claims(results):
    runs, gradient = results["runs"], results["gradient"]
    without, with_residuals = (math.log10(gradient[f"no norm, {name}, L 48"].mean)
                               for name in ("without", "with residuals"))
    yield Claim(f"no norm, without residuals: log10 of {GRADIENT}", without, -9, -5)
    yield Claim(f"no norm, with residuals: log10 of {GRADIENT}", with_residuals, 9, 13)
    pre = gradient["pre, with residuals, L 48"]
    yield Claim(f"pre, with residuals: {GRADIENT}, over its law", pre.mean / pre.law, 0.7, 1.5)
    for depth in (2, 24):
        yield learns(f"pre, L {depth}, with residuals", runs.loss(residual="true", n_layer=depth))
    yield learns("pre, L 2, without", runs.loss(residual="false", n_layer=2))
    yield stays_at_unigram("pre, L 24, without", runs.loss(residual="false", n_layer=24))


def table(results):
    lines = {f"pre, {name}": values for name, values in RESIDUALS.items()}
    return loss_table(lines, depths(2, 24))(results["runs"])


def picture(results):
    gradients = {name: Probed(np.array([results["gradient"][f"{name}, L {depth}"].measured for depth in DEPTHS]).T)
                 for name in GRADIENTS}
    return picture_of("Gradient at initialisation, with and without residual connections",
                      [Panel("", "before block 1, over after block L", gradients, True, x=("blocks (L)", DEPTHS))],
                      second=["pre, without", "no norm, without"])
