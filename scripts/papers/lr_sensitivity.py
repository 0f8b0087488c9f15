"""Wortsman et al. 2023: how much the loss depends on the learning rate, by placement, with and without qk_norm."""

import itertools

from papers.lib.experiment import Claim, crossed, loss_table, losses_by_rate, np, placements, rates, table_of

RATES = ("0.001", "0.003", "0.01", "0.03", "0.1")
PLACEMENTS = placements("post", "deepnorm", "pre", "sandwich", "res_post")
QK_NORM = {"without qk_norm": {"qk_norm": "false"}, "with qk_norm": {"qk_norm": "true"}}


def measure(run):
    """The training loss at step 1."""
    return {"first": run.rows("metrics.csv", ("train_loss",))[0, 0]}


def sensitivity(runs, **values):
    """The loss minus that of the best rate, mean over the rates. A loss above the first step's counts as that one."""
    losses = np.minimum(runs.losses(**values), runs.measured("first", **values))
    return float(losses.mean() - losses.min())


def largest_rate_that_learns(runs, **values):
    """The largest rate such that it and all smaller ones ended below 2.9 nats; 0 if there is none."""
    learning = itertools.takewhile(lambda rate: runs.loss(**values, lr=rate) <= 2.9, RATES)
    return max(map(float, learning), default=0.0)


def claims(runs):
    for placement, low, high in (("post", 0, 0), ("pre", 0.003, 1), ("sandwich", 0.003, 1), ("res_post", 0.003, 1),
                                 ("deepnorm", 0.003, 1)):
        rate = largest_rate_that_learns(runs, norm_placement=placement, qk_norm="false")
        yield Claim(f"{placement}: largest rate that learns", rate, low, high)
    without, with_norm = (sensitivity(runs, norm_placement="pre", **values) for values in QK_NORM.values())
    yield Claim("pre: sensitivity without qk_norm less with", without - with_norm, 0.01, 1)
    for placement in ("sandwich", "res_post"):
        ratio = sensitivity(runs, norm_placement=placement, qk_norm="false") / without
        yield Claim(f"{placement}: sensitivity over pre's", ratio, 0, 0.9)


def table(runs):
    sensitivities = table_of(runs, "sensitivity to the rate", lambda **values: f"{sensitivity(runs, **values):.3f}",
                             PLACEMENTS, QK_NORM)
    return loss_table(crossed(PLACEMENTS, QK_NORM), rates(*RATES))(runs) + "\n" + sensitivities


picture = losses_by_rate("Rate and placement", QK_NORM, PLACEMENTS)
