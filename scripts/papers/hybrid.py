"""HybridNorm, Zhuo et al. 2025, against pre-norm."""

from papers.init import INITS
from papers.lib.experiment import Claim, loss_table, placements


def claims(runs):
    for name, scheme, placement, low, high in (("Xavier", "xavier_normal", "hybrid", 0.05, 0.5),
                                               ("Xavier", "xavier_normal", "hybrid_star", 0.05, 0.5),
                                               ("GPT-2's", "gpt2", "hybrid", -0.05, 0.05)):
        difference = runs.difference({"norm_placement": placement}, {"norm_placement": "pre"}, scheme=scheme)
        yield Claim(f"{name}: {placement} minus pre, by seed", difference, low, high)


table = loss_table(placements("pre", "hybrid", "hybrid_star"), INITS, against="pre")
