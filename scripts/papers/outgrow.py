"""Peri-LN, Kim et al. 2025: how far training carries the residual stream at a large rate, and where norms hold it."""

from lib.experiment import (COLORS, LINES, Claim, Line, curve, draw, drawing, figure_of, loss_table, placements, rates,
                            scale_y, seeds_of, whole_x, write_unit)

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


@drawing
def picture(runs):
    lines = {name: Line(name, COLORS[name], dash) for name, dash in zip(PLACEMENTS, LINES)}  # two of them coincide
    figure, axes = figure_of(len(RATES), "The stream in training", seeds_of(runs), lines.values())
    for panel, rate in zip(axes, RATES):
        panel.set_title(f"lr {rate}")
        for name, line in lines.items():
            steps, rms = runs.measured("stream", norm_placement=name, lr=rate).transpose(1, 0, 2)
            draw(panel, steps[0], rms, line)
        whole_x(panel, steps[0, -1])
        panel.set_xlabel("step")
        write_unit(panel, "rms of the stream after the last block")
        scale_y(panel, [runs.measured("stream")[:, 1]], log=True)
    return figure
