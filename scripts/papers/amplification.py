"""Liu et al. 2020: is it the amplification A that decides what trains without warm-up? A map of what is trainable."""

import math

from lib.theory import mean_field
from papers.lib.experiment import (HEIGHT, INK, MUTED, PALETTE, Claim, amplification, drawing, line_handle, loss_table,
                                   matplotlib, new_figure, np, rates, set_values, sweep, write_unit)

RATES = ("0.0003", "0.001", "0.003")
LEARNT = 2.8  # nats: a final loss below it
DEPTHS, SCALES = [4, 6, 12, 24, 48, 64], (0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.2)  # of the map
COSINES = (0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 1)  # limits of the map's colours
LEVELS = (1, 2, 5, 10, 20, 50)  # values of A at the map's lines


def run(config, out, quick):
    runs = sweep(config, out, quick, A=amplification)
    cosines, levels = theory_of_map(min(out.glob("*/config.json")))  # the map replaces what its runs differ in
    return {"runs": runs, "cosines": cosines, "levels": levels}


def models(runs, **values):
    """[(A, blocks, scale of the branches)] of the runs, by rising A."""
    return sorted({(row["A"], row["n_layer"], row["branch_scale"]) for row in runs.where(**values)})


def has_learnt(runs, depth, scale, rate):
    """Whether a model has left the unigram level; one that diverged has not."""
    return runs.loss(n_layer=depth, branch_scale=scale, lr=rate) < LEARNT


def outcomes(runs, rate):
    """[(A, whether the model learnt at this rate)], by rising A."""
    return [(a, has_learnt(runs, depth, scale, rate)) for a, depth, scale in models(runs, lr=rate)]


def count_out_of_order(runs):
    """How many models did not learn although one of larger A did, at the same rate."""
    learnt = [[good for _, good in outcomes(runs, rate)] for rate in RATES]
    return sum(not good and any(row[i:]) for row in learnt for i, good in enumerate(row))


def limit(runs, rate):
    """The geometric mean of the largest A with which a model learnt and the smallest with which one did not."""
    tried = outcomes(runs, rate)
    largest = max((a for a, good in tried if good), default=tried[0][0])
    smallest = min((a for a, good in tried if not good), default=tried[-1][0])
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
    lines = {f"A {a:.1f}: L {depth}, branches × {scale}": {"n_layer": depth, "branch_scale": scale}
             for a, depth, scale in models(runs)}
    return loss_table(lines, rates(*RATES))(runs)


def theory_of_map(config):
    """(cosine of two tokens after the last block, A) before training, arrays (scales, depths) over the map."""
    config = mean_field.resolved(config)
    cosines, levels = np.empty((2, len(SCALES), len(DEPTHS)))
    for i, scale in enumerate(SCALES):
        for j, depth in enumerate(DEPTHS):
            model = {**config["model"], "n_layer": depth, "branch_scale": scale}
            prediction = mean_field.predict({**config, "model": model}, narrow=True)
            cosines[i, j], levels[i, j] = prediction.layers[-1]["token_cosine"], prediction.amplification
    return cosines, levels


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
        for _, depth, scale in models(runs, lr=rate):
            handle = handles[not has_learnt(runs, depth, scale, rate)]
            axes.plot(int(depth), float(scale), handle.get_marker(), color=handle.get_color(), markersize=10,
                      markeredgecolor="white")
        axes.set_yscale("log")
        axes.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
        set_values(axes, "blocks (L)", DEPTHS)
        axes.set_xlim(DEPTHS[0], DEPTHS[-1])
        write_unit(axes, "weight of a branch")
    figure.colorbar(filled, ax=panels, label="cosine of two tokens", pad=0.02)
    return figure
