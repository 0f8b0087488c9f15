"""The trouble with Norm(x + F(x)), before training and after five steps: the gradient by layer, and the tokens."""

from papers.lib.experiment import STYLES, Claim, Line, Panel, by_layer, placements, read_csv, seeds_of

PLACEMENTS = placements("pre", "post")
TIMES = ("before training", "after five steps")
GRADIENT = "gradient at the embedding over that after the last block"
COSINE = "cosine of two tokens after the last block"


def layers(run):
    """[before training, after the steps but the last]: [rms of the stream's gradient, cosine of two tokens], layers
    0..L."""
    rows = [row for row in read_csv(run.folder / "layers.csv") if row["site"] == "stream"]
    return [[[float(row[column]) for row in rows if row["step"] == step] for column in ("grad_rms", "token_cosine")]
            for step in (rows[0]["step"], rows[-1]["step"])]


MEASURES = {"layers": layers}


def claims(runs):
    def gradient(placement, time):
        rms = runs.measured("layers", **PLACEMENTS[placement])[:, TIMES.index(time), 0]
        return float((rms[:, 0] / rms[:, -1]).mean())

    def cosine(placement, time):
        return float(runs.measured("layers", **PLACEMENTS[placement])[:, TIMES.index(time), 1, -1].mean())

    yield Claim(f"post, before training: {GRADIENT}", gradient("post", TIMES[0]), 0.7, 3)
    yield Claim(f"post, after five steps: {GRADIENT}", gradient("post", TIMES[1]), 0, 0.1)
    yield Claim(f"pre, after five steps: {GRADIENT}", gradient("pre", TIMES[1]), 1, 20)
    yield Claim(f"post, before training: {COSINE}", cosine("post", TIMES[0]), 0.97, 1)
    yield Claim(f"post, after five steps: {COSINE}", cosine("post", TIMES[1]), 0.999, 1)
    yield Claim(f"pre, after five steps: {COSINE}", cosine("pre", TIMES[1]), 0, 0.9, must_hold=False)


def picture(runs):
    quantities = (("gradient rms (nats per unit)", True), ("cosine of two tokens", False))
    panels = [Panel(time, text, {name: (runs.measured("layers", **values)[:, TIMES.index(time), number], None)
                                 for name, values in PLACEMENTS.items()}, 0, log)
              for number, (text, log) in enumerate(quantities) for time in TIMES]
    lines = {name: Line(name, *STYLES[name][:2]) for name in PLACEMENTS}
    return by_layer("Pre-norm and post-norm, 12 blocks", panels, lines, seeds_of(runs))
