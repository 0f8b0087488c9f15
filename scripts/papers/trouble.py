"""The trouble with Norm(x + F(x)), before training and after five steps: the gradient by layer, and the tokens."""

from papers.lib.experiment import Claim, Panel, picture_of, placements, site

PLACEMENTS = placements("pre", "post")
TIMES = ("before training", "after five steps")
GRADIENT = "gradient at the embedding over that after the last block"
COSINE = "cosine of two tokens after the last block"


def measure(run):
    """The rms of the stream's gradient and the cosine of two tokens, layers 0..L, before training and after the steps
    but the last."""
    steps, *columns = site(run, "stream", "step", "grad_rms", "token_cosine")
    return {f"{name}, {time}": column[steps == step] for name, column in zip(("gradient", "cosine"), columns)
            for time, step in zip(TIMES, (steps[0], steps[-1]))}


def claims(runs):
    for placement, time, low, high in (("post", TIMES[0], 0.7, 3), ("post", TIMES[1], 0, 0.1),
                                       ("pre", TIMES[1], 1, 20)):
        gradient = runs.measured(f"gradient, {time}", norm_placement=placement)
        yield Claim(f"{placement}, {time}: {GRADIENT}", (gradient[:, 0] / gradient[:, -1]).mean(), low, high)
    for placement, time, low, high, must_hold in (("post", TIMES[0], 0.97, 1, True), ("post", TIMES[1], 0.999, 1, True),
                                                  ("pre", TIMES[1], 0, 0.9, False)):
        cosine = runs.measured(f"cosine, {time}", norm_placement=placement)
        yield Claim(f"{placement}, {time}: {COSINE}", cosine[:, -1].mean(), low, high, must_hold)


def picture(runs):
    panels = [Panel(time, unit, runs.lines(f"{name}, {time}", PLACEMENTS), log)
              for name, unit, log in (("gradient", "gradient rms (nats per unit)", True),
                                      ("cosine", "cosine of two tokens", False)) for time in TIMES]
    return picture_of("Pre-norm and post-norm, 12 blocks", panels)
