"""Dynamic Tanh (Zhu et al. 2025) and Derf (Chen et al. 2025) in the place of LayerNorm."""

from papers.lib.experiment import Claim, choices, depths, loss_table


def claims(runs):
    for norm in ("dyt", "derf"):
        for depth in (12, 24):
            difference = runs.difference({"norm": norm}, {"norm": "layernorm"}, n_layer=depth)
            yield Claim(f"{norm} minus layernorm at L {depth}, by seed", difference, 0.02, 0.3)


table = loss_table(choices("norm", "layernorm", "dyt", "derf"), depths(12, 24), against="layernorm")
