"""Liu et al. 2020: is it the amplification A that decides what trains without warm-up? A map of what is trainable."""

import math
from operator import itemgetter

from lib.theory import mean_field
from papers.lib.experiment import (HEIGHT, INK, MUTED, PALETTE, Claim, drawing, line_handle, loss_table,
                                   matplotlib, new_figure, np, predicted, rates, set_values, sweep, write_unit)

RATES = ("0.0003", "0.001", "0.003")
LEARNT = 2.8  # nats: a final loss below it
DEPTHS, SCALES = [4, 6, 12, 24, 48, 64], (0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.2)  # of the map
COSINES = (0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 1)  # limits of the map's colours
LEVELS = (1, 2, 5, 10, 20, 50)  # values of A at the map's lines


def measure(run):
    """The amplification by theory."""
    return {"A": predicted(run)["amplification"]}


def run(config, out, quick):
    runs = sweep(config, out, quick, measure)
    base = mean_field.resolved(min(out.glob("*/config.json")))  # the map replaces what its runs differ in

    def predict(scale, depth):
        model = {**base["model"], "n_layer": depth, "branch_scale": scale}
        return mean_field.predict({**base, "model": model}, narrow=True)

    theory = [[predict(scale, depth) for depth in DEPTHS] for scale in SCALES]
    return {"runs": runs, "cosines": [[at.layers[-1]["token_cosine"] for at in row] for row in theory],
            "levels": [[at.amplification for at in row] for row in theory]}


def outcomes(runs, rate):
    """[(A, whether the model has left the unigram level, its row)] at this rate, by rising A. One that diverged has
    not."""
    tried = [(row["A"], loss < LEARNT, row) for row, loss in zip(runs.where(lr=rate), runs.losses(lr=rate))]
    return sorted(tried, key=itemgetter(0))


def count_out_of_order(runs):
    """How many models did not learn although one of larger A did, at the same rate."""
    learnt = [[good for _, good, _ in outcomes(runs, rate)] for rate in RATES]
    return sum(not good and any(row[i:]) for row in learnt for i, good in enumerate(row))


def limit(runs, rate):
    """The geometric mean of the largest A with which a model learnt and the smallest with which one did not."""
    tried = outcomes(runs, rate)
    largest = max((a for a, good, _ in tried if good), default=tried[0][0])
    smallest = min((a for a, good, _ in tried if not good), default=tried[-1][0])
    return math.sqrt(largest * smallest)


def claims(results):
    runs = results["runs"]
    low, middle, high = (limit(runs, rate) for rate in RATES)
    yield Claim("models that do not learn though one of larger A does", count_out_of_order(runs), 0, 0)
    yield Claim("lr 0.001: A at which learning ends", middle, 5, 20)
    yield Claim("A at which learning ends: lr 0.001 over lr 0.003", middle / high, 2, 5)
    yield Claim("A at which learning ends: lr 0.0003 over lr 0.001", low / middle, 1, 5)


def table(results):
    runs = results["runs"]
    lines = {f"A {row['A']:.1f}: L {row['n_layer']}, branches × {row['branch_scale']}":
             {key: row[key] for key in ("n_layer", "branch_scale")} for row in sorted(runs.rows, key=itemgetter("A"))}
    return loss_table(lines, rates(*RATES))(runs)


@drawing
def picture(results):
    blues, runs = matplotlib.colormaps["Blues"](np.linspace(0, 0.7, len(COSINES) - 1)), results["runs"]
    handles = [line_handle("learns", PALETTE[1], "", "o"), line_handle("stays at the unigram level", MUTED, "", "s")]
    subtitle = ("one seed; theory (scripts/predict.py): colour, cosine of two tokens after the last block; lines, "
                "amplification A")
    figure, panels = new_figure(len(RATES), len(RATES), HEIGHT, "Post-norm without warm-up: what learns", subtitle,
                                handles)
    for axes, rate in zip(panels, RATES):
        axes.set_title(f"lr {rate}")
        filled = axes.contourf(DEPTHS, SCALES, results["cosines"], COSINES, colors=blues)
        lines = axes.contour(DEPTHS, SCALES, results["levels"], LEVELS, colors=INK, linewidths=0.8)
        axes.clabel(lines, fmt="A %g", fontsize=8)
        for _, has_learnt, row in outcomes(runs, rate):
            handle = handles[not has_learnt]
            axes.plot(int(row["n_layer"]), float(row["branch_scale"]), handle.get_marker(), color=handle.get_color(),
                      markersize=10, markeredgecolor="white")
        axes.set_yscale("log")
        axes.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
        set_values(axes, "blocks (L)", DEPTHS)
        axes.set_xlim(DEPTHS[0], DEPTHS[-1])
        write_unit(axes, "weight of a branch")
    figure.colorbar(filled, ax=panels, label="cosine of two tokens", pad=0.02)
    return figure
