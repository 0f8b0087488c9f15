"""He et al. 2016: the effect of residual connections on the gradient of the first block, and on learning."""

import math

from papers.lib.experiment import (DASHES, PALETTE, Claim, Line, choices, config_of, depth_ticks, draw, drawing,
                                   figure_of, growth_of_gradient, law_of_growth, learns, loss_table, np, probe, scale_of,
                                   set_scale, stays_at_unigram, sweep, write_unit)

DEPTHS = [2, 4, 8, 16, 32, 48]
STYLES = {("pre", "true"): ("pre, with residuals", PALETTE[0], "-"),
          ("pre", "false"): ("pre, without", PALETTE[0], DASHES),
          ("none", "true"): ("no norm, with residuals", PALETTE[1], "-"),
          ("none", "false"): ("no norm, without", PALETTE[1], DASHES)}
VARIANTS = {(placement, residual, depth): {"norm_placement": placement, "residual": residual, "n_layer": depth}
            for placement, residual in STYLES for depth in DEPTHS}
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
    return loss_table(results["runs"], LINES, choices("n_layer", 2, 24, name="L {}"))


@drawing
def picture(results):
    figure, (axes,) = figure_of(1, "Gradient at initialisation, with and without residual connections",
                                "mean (lines) and range (bands) of the seeds", STYLES.values())
    write_unit(axes, "before block 1, over after block L")
    drawn = []
    for (placement, residual), style in STYLES.items():
        drawn.append(np.array([results["gradient"][placement, residual, depth][0] for depth in DEPTHS]).T)
        draw(axes, DEPTHS, drawn[-1], Line(*style), "o")
    set_scale(axes, scale_of(drawn, log=True))
    depth_ticks(axes, DEPTHS)
    return figure
