"""Kalamkar et al. 2019: does training in bf16 cost anything, by placement?"""

from papers.lib.experiment import Claim, loss_table, placements

PRECISIONS = {"float32": {"precision": "fp32"}, "bf16": {"precision": "bf16"}}


def claims(runs):
    for placement in ("pre", "sandwich", "deepnorm"):  # post-norm learns nothing here
        difference = runs.difference(PRECISIONS["bf16"], PRECISIONS["float32"], norm_placement=placement)
        yield Claim(f"{placement}: bf16 minus float32, by seed", difference, -0.001, 0.001)


table = loss_table(PRECISIONS, placements("pre", "sandwich", "deepnorm", "post"), against="float32")
