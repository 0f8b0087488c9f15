"""He et al. 2016: the effect of residual connections on the gradient of the first block, and on learning."""

import math

from papers.lib.experiment import (Claim, Panel, Probed, choices, config_of, growth_of_gradient, law_of_growth, learns,
                                   loss_table, np, picture_of, probe, stays_at_unigram, sweep)

DEPTHS = [2, 4, 8, 16, 32, 48]
GRADIENTS = {"pre, with residuals": ("pre", "true"), "pre, without": ("pre", "false"),
             "no norm, with residuals": ("none", "true"), "no norm, without": ("none", "false")}
VARIANTS = {(placement, residual, depth): {"norm_placement": placement, "residual": residual, "n_layer": depth}
            for placement, residual in GRADIENTS.values() for depth in DEPTHS}
LINES = {"pre, with residuals": {"residual": "true"}, "pre, without": {"residual": "false"}}
GRADIENT = "the gradient before block 1 over after block 48"


def run(config, out, quick):
    gradient = probe(config_of("xiong"), out, quick, VARIANTS, growth_of_gradient, law_of_growth)
    return {"runs": sweep(config, out, quick), "gradient": gradient}


def claims(results):
    runs, gradient = results["runs"], results["gradient"]
    without, with_residuals = (math.log10(gradient["none", residual, 48][0].mean()) for residual in ("false", "true"))
    yield Claim(f"no norm, without residuals: log10 of {GRADIENT}", without, -9, -5)
    yield Claim(f"no norm, with residuals: log10 of {GRADIENT}", with_residuals, 9, 13)
    measured, expected = gradient["pre", "true", 48]
    yield Claim(f"pre, with residuals: {GRADIENT}, over its law", measured.mean() / expected, 0.7, 1.5)
    for depth in (2, 24):
        yield learns(f"pre, L {depth}, with residuals", runs.loss(residual="true", n_layer=depth))
    yield learns("pre, L 2, without", runs.loss(residual="false", n_layer=2))
    yield stays_at_unigram("pre, L 24, without", runs.loss(residual="false", n_layer=24))


def table(results):
    return loss_table(LINES, choices("n_layer", 2, 24, name="L {}"))(results["runs"])


def picture(results):
    gradients = {name: Probed(np.array([results["gradient"][(*variant, depth)].measured for depth in DEPTHS]).T)
                 for name, variant in GRADIENTS.items()}
    return picture_of("Gradient at initialisation, with and without residual connections",
                      [Panel("", "before block 1, over after block L", gradients, True, x=("blocks (L)", DEPTHS))],
                      second=["pre, without", "no norm, without"])
