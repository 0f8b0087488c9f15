"""How far BatchNorm's loss in evaluation is from its loss in training, by batch size; LayerNorm is the control."""

from papers.lib.experiment import Claim, choices, loss_table, np, spread, table_of

NORMS = choices("norm", "batchnorm", "layernorm")
BATCHES = choices("batch_size", 2, 4, 8, 32, name="batch {}")


def gap(run):
    """The final validation loss minus the training loss, mean of the last 50 steps."""
    return run.summary["final_val_loss"] - run.metrics(("train_loss",))[-50:].mean()


MEASURES = {"gap": gap}


def claims(runs):
    def difference(size):
        batchnorm, layernorm = (np.mean(runs.measured("gap", norm=norm, batch_size=size)) for norm in NORMS)
        return float(batchnorm) - float(layernorm)

    yield Claim("batch 2: batchnorm's gap minus layernorm's", difference(2), 0.1, 2)
    yield Claim("batch 32: batchnorm's gap minus layernorm's", difference(32), -0.05, 0.05)


def table(runs):
    def cell(**values):
        return spread(runs.measured("gap", **values), "{:+.3f}")

    return table_of(runs, "evaluation − training", cell, NORMS, BATCHES) + "\n" + loss_table(NORMS, BATCHES)(runs)
