"""Zhang & Sennrich 2019: does it cost anything not to subtract the mean?"""

from papers.lib.experiment import Claim, choices, loss_table

NORMS = choices("norm", "layernorm", "rmsnorm")


def claims(runs):
    yield Claim("rmsnorm minus layernorm, by seed", runs.difference(NORMS["rmsnorm"], NORMS["layernorm"]), -0.05, 0.05)


table = loss_table(NORMS, against="layernorm")
