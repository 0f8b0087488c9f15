#!/usr/bin/env python3
"""Plots what happened in the layers of one or more runs: gradients and activations of the residual stream."""

import argparse

from runs import (PlotError, cross, draw, find_runs, group_runs, literal, main, new_figure, newest_family, np,
                  on_steps, output_path, save, scale_y, shared_settings, whole_x)
from matplotlib.lines import Line2D

EXAMPLES = """examples:
  scripts/plot_layers.py                                   the newest run and its kin
  scripts/plot_layers.py runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot_layers.py runs/sweep --step 1               at the first update
  scripts/plot_layers.py runs/deep_pre-probe               at initialisation
"""
VARYING = ("model.norm_placement", "model.norm", "model.final_norm")
GRADIENT = "gradient rms of the stream\n(nats per unit)"
ACTIVATION = "activation rms of the stream\n(units)"
MARKERS = "osD^vPX*"


class Stream:
    """A run's residual stream: `steps`, and `rms` and `grad` as arrays (steps, layers 0..L)."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"),
                        "set log.layers_every above 0 and train again", keep=("site", "stream"))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        self.rms, self.grad = np.full((2, self.steps.size, layers.max() + 1), np.nan)
        self.rms[at, layers], self.grad[at, layers] = rows[:, 2], rows[:, 3]

    def index(self, step):
        """The row of `step`; None: the last one that is finite throughout, or else the last."""
        if step is None:
            good = np.flatnonzero(np.isfinite(self.rms).all(axis=1) & np.isfinite(self.grad).all(axis=1))
            return good[-1] if good.size else -1
        found = np.flatnonzero(self.steps == step)
        if not found.size:
            near = sorted(sorted(self.steps, key=lambda s: abs(s - step))[:2])
            raise PlotError(f"{self.run}: no row of step {step} in layers.csv; nearest: "
                            f"{' and '.join(map(str, near))}")
        return found[0]


def depth_panel(axes, groups, streams, pick, step):
    """Values of the stream against the block, at one step."""
    drawn, deepest = [], max(s.rms.shape[1] for s in sum(streams, [])) - 1
    for group, members, marker in zip(groups, streams, MARKERS * len(groups)):
        rows = np.stack([pick(s)[s.index(step)] for s in members])
        drawn.append(draw(axes, np.arange(rows.shape[1]), rows, group.color, marker if deepest <= 24 else None))
        drawn += list(np.where(np.isfinite(rows), rows, np.nan))
    whole_x(axes, deepest)
    axes.set_xlabel("block (0 = embedding output)")
    return drawn


def step_panel(axes, groups, streams, pick, dashed=None):
    """A value of the stream against the step; `dashed` picks a second line a group. Crosses come later."""
    drawn = []
    for group, members in zip(groups, streams):
        for chosen, style in ((pick, False), (dashed, True)):
            if chosen:
                steps, rows = on_steps([s.steps for s in members], [chosen(s) for s in members])
                draw(axes, steps, rows, group.color, dashed=style)
                drawn.append(rows)
    whole_x(axes, max(s.steps[-1] for s in sum(streams, [])))
    axes.set_xlabel("step")
    return drawn


def mark_diverged(axes, groups, streams, pick):
    for group, members in zip(groups, streams):
        for stream in members:
            if stream.run.diverged:
                cross(axes, stream.steps, pick(stream), group.color)


def plot(groups, step):
    streams = [[Stream(run) for run in group.runs] for group in groups]
    every = sum(streams, [])
    shown = sorted({int(s.steps[s.index(step)]) for s in every})
    if shown == [0]:
        when = "at initialisation"
    elif len(shown) == 1:
        when = f"at step {shown[0]}"
    else:
        when = f"at each run's last step ({shown[0]}–{shown[-1]})"
    over_time = max(s.steps.size for s in every) > 1
    depths = {s.rms.shape[1] - 1 for s in every}
    last = f"block {depths.pop()}" if len(depths) == 1 else "last block"

    markers = MARKERS if max(s.rms.shape[1] for s in every) <= 25 else " " * len(MARKERS)
    handles = [Line2D([], [], color=g.color, linewidth=2.4, marker=m.strip(), markersize=5, label=literal(g.legend()))
               for g, m in zip(groups, markers * len(groups))]
    figure, axes = new_figure(2 if over_time else 1, 2, 3.45, "Gradients and activations of the residual stream",
                              shared_settings(groups), handles)
    axes[0].set_title(f"Gradient by depth, {when}")
    axes[0].set_ylabel(GRADIENT)
    scale_y(axes[0], depth_panel(axes[0], groups, streams, lambda s: s.grad, step), log=True)
    axes[1].set_title(f"Activation by depth, {when}")
    axes[1].set_ylabel(ACTIVATION)
    scale_y(axes[1], depth_panel(axes[1], groups, streams, lambda s: s.rms, step))
    if not over_time:
        return figure

    def first(stream):
        return stream.grad[:, min(1, stream.grad.shape[1] - 1)]

    two_blocks = last != "block 1"
    axes[2].set_title("Gradient during training, "
                      + (last if not two_blocks else f"blocks 1 and {last[6:]}" if last[-1].isdigit() else "first and last block"))
    axes[2].set_ylabel(GRADIENT)
    scale_y(axes[2], step_panel(axes[2], groups, streams, first, (lambda s: s.grad[:, -1]) if two_blocks else None),
            log=True)
    mark_diverged(axes[2], groups, streams, first)
    if two_blocks:
        styles = [Line2D([], [], color="#555555", linewidth=1.9, linestyle=s, label=t)
                  for s, t in (("-", "block 1"), ((0, (3.5, 2)), last))]
        legend = axes[2].legend(handles=styles, loc="best", fontsize=10, ncol=2, handlelength=2.2, frameon=True)
        legend.get_frame().set(edgecolor="none", alpha=0.8)
    axes[3].set_title(f"Activation during training, {last}")
    axes[3].set_ylabel(ACTIVATION)
    scale_y(axes[3], step_panel(axes[3], groups, streams, lambda s: s.rms[:, -1]))
    mark_diverged(axes[3], groups, streams, lambda s: s.rms[:, -1])
    return figure


def run():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run, probe or sweep folder (default: the newest run "
                        "below runs/ and those that differ from it only in placement, norm or seed)")
    parser.add_argument("-o", "--output", metavar="FILE", help="PNG to write, an SVG beside it (default: layers.png "
                        "beside the first run)")
    parser.add_argument("--step", type=int, metavar="N", help="step of the upper panels (default: the last logged)")
    args = parser.parse_args()
    runs = find_runs(args.runs, "layers.csv") if args.runs else newest_family("layers.csv", VARYING)
    path = output_path(args.output, runs, "layers.png")
    save(plot(group_runs(runs), args.step), path)


if __name__ == "__main__":
    main(run)
