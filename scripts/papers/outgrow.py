"""Peri-LN, Kim et al. 2025: how far training carries the residual stream at a large rate, and where norms hold it."""

from papers.lib.experiment import Claim, Panel, Probed, curve, loss_table, picture_of, placements, rates

PLACEMENTS = ("pre", "sandwich", "peri")
RATES = ("0.001", "0.01")
# [logged steps, rms of the stream after the last block]
MEASURES = {"stream": lambda run: curve(run, "stream")}


def claims(runs):
    def growth(placement):
        rms = runs.measured("stream", norm_placement=placement, lr="0.01")[:, 1]
        return float((rms[:, -1] / rms[:, 0]).mean())

    for placement, low, high in (("pre", 10, 50), ("sandwich", 1.5, 5), ("peri", 1.5, 5)):
        yield Claim(f"{placement}, lr 0.01: rms of the stream, last step over first", growth(placement), low, high)


table = loss_table(placements(*PLACEMENTS), rates(*RATES))


def picture(runs):
    panels = [Panel(f"lr {rate}", "rms of the stream after the last block", {
        name: Probed(runs.measured("stream", norm_placement=name, lr=rate)[:, 1]) for name in PLACEMENTS}, True,
                    x=("step", runs.measured("stream")[0, 0])) for rate in RATES]
    return picture_of("The stream in training", panels, second=["peri"])  # it coincides with sandwich
