"""Peri-LN, Kim et al. 2025: how far training carries the residual stream at a large rate, and where norms hold it."""

from papers.lib.experiment import Claim, Panel, curve, loss_table, picture_of, placements, rates

PLACEMENTS = placements("pre", "sandwich", "peri")
RATES = ("0.001", "0.01")


def measure(run):
    """The rms of the stream after the last block at the logged steps."""
    step, rms = curve(run, "stream")
    return {"step": step, "rms": rms}


def claims(runs):
    for placement, low, high in (("pre", 10, 50), ("sandwich", 1.5, 5), ("peri", 1.5, 5)):
        rms = runs.measured("rms", norm_placement=placement, lr="0.01")
        yield Claim(f"{placement}, lr 0.01: rms of the stream, last step over first", (rms[:, -1] / rms[:, 0]).mean(),
                    low, high)


table = loss_table(PLACEMENTS, rates(*RATES))


def picture(runs):
    panels = [Panel(f"lr {rate}", "rms of the stream after the last block", runs.lines("rms", PLACEMENTS, lr=rate),
                    True, x=("step", runs.measured("step")[0])) for rate in RATES]
    return picture_of("The stream in training", panels, second=["peri"])  # it coincides with sandwich
