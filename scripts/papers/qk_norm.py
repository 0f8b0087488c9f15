"""Does a norm on queries and keys raise the largest rate that learns?"""

from papers.lib.experiment import Claim, loss_table, losses_by_rate, rates

LINES = {"without": {"qk_norm": "false"}, "with": {"qk_norm": "true"}}


def claims(runs):
    for rate, low, high in (("0.003", -0.03, 0.03), ("0.01", -1, -0.02), ("0.03", -1, -0.05), ("0.1", -1, -0.2)):
        difference = runs.difference({**LINES["with"], "lr": rate}, {**LINES["without"], "lr": rate})
        yield Claim(f"lr {rate}: loss with qk_norm minus loss without, by seed", difference, low, high)


def table(runs):
    return loss_table(runs, LINES, rates("0.003", "0.01", "0.03", "0.1"), against="without")


def picture(runs):
    return losses_by_rate(runs, "A norm on queries and keys", {"": {}}, LINES)
