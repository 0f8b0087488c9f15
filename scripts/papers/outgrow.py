"""Peri-LN, Kim et al. 2025: how far training carries the residual stream at a large rate, and where norms hold it."""

from papers.lib.experiment import (COLORS, LINES, Claim, Line, Panel, by_layer, curve, loss_table, placements, rates,
                                   seeds_of)

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


def table(runs):
    return loss_table(runs, placements(*PLACEMENTS), rates(*RATES))


def picture(runs):
    lines = {name: Line(name, COLORS[name], dash) for name, dash in zip(PLACEMENTS, LINES)}  # two of them coincide
    panels = [Panel(f"lr {rate}", "rms of the stream after the last block", {
        name: (runs.measured("stream", norm_placement=name, lr=rate)[:, 1], None) for name in lines}, 1, True)
              for rate in RATES]
    return by_layer("The stream in training", panels, lines, seeds_of(runs), "step", runs.measured("stream")[0, 0])
