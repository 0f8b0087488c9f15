"""The trouble with Norm(x + F(x)), before training and after five steps: the gradient by layer, and the tokens."""

from papers.lib.experiment import Claim, Panel, Probed, picture_of, placements, site

PLACEMENTS = placements("pre", "post")
TIMES = ("before training", "after five steps")
GRADIENT = "gradient at the embedding over that after the last block"
COSINE = "cosine of two tokens after the last block"


def layers(run):
    """[before training, after the steps but the last]: [rms of the stream's gradient, cosine of two tokens], layers
    0..L."""
    steps, *values = site(run, "stream", "step", "grad_rms", "token_cosine")
    return [[column[steps == step] for column in values] for step in (steps[0], steps[-1])]


MEASURES = {"layers": layers}


def claims(runs):
    def measured(placement, time):
        return runs.measured("layers", **PLACEMENTS[placement])[:, TIMES.index(time)]

    for placement, time, low, high in (("post", TIMES[0], 0.7, 3), ("post", TIMES[1], 0, 0.1),
                                       ("pre", TIMES[1], 1, 20)):
        gradient = measured(placement, time)[:, 0]
        yield Claim(f"{placement}, {time}: {GRADIENT}", (gradient[:, 0] / gradient[:, -1]).mean(), low, high)
    for placement, time, low, high, must_hold in (("post", TIMES[0], 0.97, 1, True), ("post", TIMES[1], 0.999, 1, True),
                                                  ("pre", TIMES[1], 0, 0.9, False)):
        yield Claim(f"{placement}, {time}: {COSINE}", measured(placement, time)[:, 1, -1].mean(), low, high, must_hold)


def picture(runs):
    layers_of = {name: runs.measured("layers", **values) for name, values in PLACEMENTS.items()}
    panels = [Panel(when, unit, {name: Probed(values[:, time, quantity]) for name, values in layers_of.items()}, log)
              for quantity, (unit, log) in enumerate((("gradient rms (nats per unit)", True),
                                                      ("cosine of two tokens", False)))
              for time, when in enumerate(TIMES)]
    return picture_of("Pre-norm and post-norm, 12 blocks", panels)
