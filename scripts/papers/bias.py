"""Does the FFN need its biases?"""

from papers.lib.experiment import Claim, loss_table

LINES = {"FFN without biases": {"ffn_bias": "false"}, "with": {"ffn_bias": "true"}}


def claims(runs):
    difference = runs.difference(LINES["with"], LINES["FFN without biases"])
    yield Claim("biased minus bias-free FFN, by seed", difference, -0.05, 0.05)


table = loss_table(LINES, against="FFN without biases")
