"""Keel (Chen & Wei 2026), DeepNorm and pre-norm: how do they tolerate depth and rate without warm-up?"""

from papers.lib.experiment import (choices, crossed, depths, learns, loss_table, losses_by_rate, placements, rates,
                                   stays_at_unigram)

PLACEMENTS = ("pre", "deepnorm", "keel")
DEPTHS = (24, 48, 96)
LINES = crossed(placements(*PLACEMENTS), depths(*DEPTHS))


def claims(runs):
    learning = [(name, "0.001") for name in LINES] + [("keel, L 96", "0.003"), ("pre, L 96", "0.01")]
    for name, rate in learning:
        yield learns(f"{name}, lr {rate}", runs.loss(**LINES[name], lr=rate), high=2.9)
    for name, rate in (("deepnorm, L 96", "0.003"), ("keel, L 96", "0.01")):
        yield stays_at_unigram(f"{name}, lr {rate}", runs.loss(**LINES[name], lr=rate))


table = loss_table(LINES, rates("0.001", "0.003", "0.01"))


picture = losses_by_rate("Depth and rate", choices("n_layer", *DEPTHS, name="L = {}"), placements(*PLACEMENTS))
