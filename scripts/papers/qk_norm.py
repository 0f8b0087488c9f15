"""Does a norm on queries and keys raise the largest rate that learns?"""

from papers.lib.experiment import Claim, loss_table, losses_by_rate, rates

LINES = {"without": {"qk_norm": "false"}, "with": {"qk_norm": "true"}}


def claims(runs):
    for rate, low, high in (("0.003", -0.03, 0.03), ("0.01", -1, -0.02), ("0.03", -1, -0.05), ("0.1", -1, -0.2)):
        difference = runs.difference(LINES["with"], LINES["without"], lr=rate)
        yield Claim(f"lr {rate}: loss with qk_norm minus loss without, by seed", difference, low, high)


table = loss_table(LINES, rates("0.003", "0.01", "0.03", "0.1"), against="without")


picture = losses_by_rate("A norm on queries and keys", {"": {}}, LINES)
