"""HybridNorm, Zhuo et al. 2025, against pre-norm."""

from papers.init import INITS
from papers.lib.experiment import Claim, loss_table, placements


def claims(runs):
    def minus_pre(placement, scheme):
        return runs.difference({"norm_placement": placement, "scheme": scheme},
                               {"norm_placement": "pre", "scheme": scheme})

    for placement in ("hybrid", "hybrid_star"):
        yield Claim(f"Xavier: {placement} minus pre, by seed", minus_pre(placement, "xavier_normal"), 0.05, 0.5)
    yield Claim("GPT-2's: hybrid minus pre, by seed", minus_pre("hybrid", "gpt2"), -0.05, 0.05)


def table(runs):
    return loss_table(runs, placements("pre", "hybrid", "hybrid_star"), INITS, against="pre")
