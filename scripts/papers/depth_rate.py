"""CompleteP, Dey et al. 2025: with branches scaled by 1/L, is the best rate of a shallow model that of a deep one?"""

from papers.lib.experiment import Claim, crossed, depths, loss_table, losses_by_rate, rates

RATES = ("0.001", "0.003", "0.01", "0.03", "0.1")
SCALES = {"branches × 1": {"branch_scale": "1"}, "branches × 1/L": {"branch_scale": "L^-1"}}
DEPTHS = depths(6, 12, 24, 48)


def claims(runs):
    for scale, low, high in (("branches × 1", 0.05, 1), ("branches × 1/L", 0, 0.03)):
        shallow, deep = ([runs.loss(**SCALES[scale], n_layer=depth, lr=rate) for rate in RATES] for depth in (6, 48))
        lost = deep[shallow.index(min(shallow))] - min(deep)
        yield Claim(f"{scale}: what L 48 loses at the rate that is best at L 6", lost, low, high)


table = loss_table(crossed(SCALES, DEPTHS), rates(*RATES))


picture = losses_by_rate("Rate and depth", SCALES, DEPTHS)
