"""How far BatchNorm's loss in evaluation is from its loss in training, by batch size; LayerNorm is the control."""

from papers.lib.experiment import Claim, choices, loss_table, spread, table_of

NORMS = choices("norm", "batchnorm", "layernorm")
BATCHES = choices("batch_size", 2, 4, 8, 32, name="batch {}")


def measure(run):
    """The final validation loss minus the training loss, mean of the last 50 steps."""
    return {"gap": run.summary["final_val_loss"] - run.rows("metrics.csv", ("train_loss",))[-50:].mean()}


def claims(runs):
    for size, low, high in ((2, 0.1, 2), (32, -0.05, 0.05)):
        batchnorm, layernorm = (runs.measured("gap", norm=norm, batch_size=size).mean() for norm in NORMS)
        yield Claim(f"batch {size}: batchnorm's gap minus layernorm's", batchnorm - layernorm, low, high)


def table(runs):
    gaps = table_of(runs, "evaluation − training", lambda **values: spread(runs.measured("gap", **values), "{:+.3f}"),
                    NORMS, BATCHES)
    return gaps + "\n" + loss_table(NORMS, BATCHES)(runs)
