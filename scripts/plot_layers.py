#!/usr/bin/env python3
"""Plots what happened in the layers of one or more runs: gradients and activations of the residual stream."""

import argparse
import math

from runs import (PlotError, band, cross, find_runs, group_runs, literal, main, name_lines, new_figure,
                  newest_family, nothing_finite, np, on_steps, output_path, save, say, shared_settings, ticker, whole_x)
from matplotlib.lines import Line2D  # after runs, which finds a Python that has it

EXAMPLES = """examples:
  scripts/plot_layers.py                                   the newest run and its kin
  scripts/plot_layers.py runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot_layers.py runs/sweep --step 1               at the first update
  scripts/plot_layers.py runs/deep_pre-probe               at initialisation
"""
GRADIENT = "gradient rms of the stream (nats per unit)"
ACTIVATION = "activation rms of the stream (units)"
MARKERS = "osD^vPph"


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


def number(value, plain=(1e-3, 1e5)):
    """A tick's text: plain within a range, else a power of ten in Unicode, so that an SVG shows it in any font."""
    if value == 0 or plain[0] <= abs(value) < plain[1]:
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = mantissa.replace(".0", "")
    return power if mantissa == "1" else f"{mantissa}×{power}"


def scale_y(axes, values, log=False):
    """Limits and ticks for the finite values; log: always, else where they span more than a factor of 10."""
    values = np.concatenate([np.ravel(v) for v in values])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if not positive.size:  # nothing, or zeros only
        axes.set_ylim(0, 1)
        if not values.size:
            axes.set_yticks([])
            nothing_finite(axes)
        return
    low, high = positive.min(), positive.max()
    if not log and high <= 10 * low and values.min() >= 0:
        axes.set_ylim(0, 1.12 * high)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: number(v)))
        return
    axes.set_yscale("log", nonpositive="mask")
    pad = max((high / low) ** 0.07, 2 / math.sqrt(high / low), 1.05)
    low, high = max(low / pad, 1e-320), min(high * pad, 1e307)
    axes.set_ylim(low, high)
    decades = math.log10(high / low)
    subs = (1, 2, 3, 5, 7) if decades < 1.2 else (1, 2, 5) if decades < 2.5 else (1,)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=8 if decades >= 2.5 else 20))
    plain = (1e-3, 1e5) if low > 1e-3 and high < 1e5 else (math.inf, math.inf)  # one way of writing an axis
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: number(v, plain)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def draw(axes, x, rows, group, marker=None, dashed=False):
    """A group's line, its band, and dots where a line would not show; gaps where values are not finite."""
    mean, low, high = band(rows)
    color, label = group.color, None if dashed else literal(group.label)
    if len(rows) > 1:
        axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0, zorder=2)
    good = np.isfinite(mean)
    alone = good & ~np.r_[False, good[:-1]] & ~np.r_[good[1:], False]
    axes.plot(x, mean, color=color, linewidth=1.9, linestyle=(0, (3.5, 2)) if dashed else "-", marker=marker,
              markersize=4.2, label=label, zorder=3)
    if alone.any() and marker is None:
        axes.plot(x[alone], mean[alone], linestyle="", marker="o", markersize=5, color=color, zorder=3,
                  markerfacecolor="white" if dashed else color)


def depth_panel(axes, groups, streams, pick, step):
    """Values of the stream against the block, at one step."""
    drawn, deepest = [], max(s.rms.shape[1] for s in sum(streams, [])) - 1
    for group, members, marker in zip(groups, streams, MARKERS * len(groups)):
        rows = np.stack([pick(s)[s.index(step)] for s in members])
        draw(axes, np.arange(rows.shape[1]), rows, group, marker if deepest <= 24 else None)
        drawn.append(rows)
    whole_x(axes, deepest)
    apart = next(n for n in range(1, deepest + 2) if deepest % n == 0 and deepest <= 8 * n)
    if apart == 1 or deepest >= 3 * apart:  # a tick at the last block too
        axes.set_xticks(range(0, deepest + 1, apart))
    axes.set_xlabel("block (0 = embedding output)")
    return drawn


def step_panel(axes, groups, streams, pick, dashed=None):
    """A value of the stream against the step; `dashed` picks a second line a group. Crosses come later."""
    drawn = []
    for group, members in zip(groups, streams):
        for chosen, style in ((pick, False), (dashed, True)):
            if chosen:
                steps, rows = on_steps([s.steps for s in members], [chosen(s) for s in members])
                draw(axes, steps, rows, group, dashed=style)
                drawn.append(rows)
    whole_x(axes, max(s.steps[-1] for s in sum(streams, [])))
    axes.set_xlabel("step")
    return drawn


def mark_diverged(axes, groups, streams, pick):
    """Crosses where runs diverged; after the limits are set."""
    for group, members in zip(groups, streams):
        for stream in members:
            if stream.run.diverged:
                cross(axes, stream.steps, pick(stream), group.color)


def plot(groups, step):
    """The figure: depth above, at `step` (None: the last); training below, where more than one step was logged."""
    streams = [[Stream(run) for run in group.runs] for group in groups]
    every = sum(streams, [])
    shown = sorted({int(s.steps[s.index(step)]) for s in every})
    if shown == [0]:
        when = "at initialisation"
    elif len(shown) == 1:
        when = f"at step {shown[0]}"
    else:
        when = f"last steps ({shown[0]}–{shown[-1]})"
    over_time = max(s.steps.size for s in every) > 1
    depths = {s.rms.shape[1] - 1 for s in every}
    last = f"block {depths.pop()}" if len(depths) == 1 else "last block"

    markers = MARKERS if max(s.rms.shape[1] for s in every) <= 25 else " " * len(MARKERS)
    handles = [Line2D([], [], color=g.color, linewidth=2.4, marker=m.strip(), markersize=5, label=literal(g.legend()))
               for g, m in zip(groups, markers * len(groups))]
    figure, axes = new_figure(2 if over_time else 1, 2, 3.45, "Gradients and activations of the residual stream",
                              shared_settings(groups), handles)
    axes[0].set_title(f"Gradient by depth, {when}")
    say(axes[0], GRADIENT)
    scale_y(axes[0], depth_panel(axes[0], groups, streams, lambda s: s.grad, step), log=True)
    axes[1].set_title(f"Activation by depth, {when}")
    say(axes[1], ACTIVATION)
    scale_y(axes[1], depth_panel(axes[1], groups, streams, lambda s: s.rms, step))
    if not over_time:
        for panel in axes:
            name_lines(panel)
        return figure

    def first(stream):
        return stream.grad[:, min(1, stream.grad.shape[1] - 1)]

    def final(stream):
        return stream.grad[:, -1]

    two_blocks = last != "block 1"
    which = (last if not two_blocks else f"blocks 1 and {last.split()[1]}" if last != "last block"
             else "first and last block")
    axes[2].set_title(f"Gradient during training, {which}")
    say(axes[2], GRADIENT)
    scale_y(axes[2], step_panel(axes[2], groups, streams, first, final if two_blocks else None),
            log=True)
    if two_blocks:
        styles = [Line2D([], [], color="#555555", linewidth=1.9, linestyle=s, label=t)
                  for s, t in (("-", "block 1"), ((0, (3.5, 2)), last))]
        low, high = axes[2].get_ylim()
        if axes[2].get_yscale() == "log":
            axes[2].set_ylim(low, min(high * (high / low) ** 0.13, 1e307))  # room for the legend
        axes[2].legend(handles=styles, loc="upper right", borderaxespad=0.2, fontsize=10, ncol=2, handlelength=2.2)
        mark_diverged(axes[2], groups, streams, final)
    mark_diverged(axes[2], groups, streams, first)
    axes[3].set_title(f"Activation during training, {last}")
    say(axes[3], ACTIVATION)
    scale_y(axes[3], step_panel(axes[3], groups, streams, lambda s: s.rms[:, -1]))
    mark_diverged(axes[3], groups, streams, lambda s: s.rms[:, -1])
    for panel in axes:
        name_lines(panel)
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
    runs = find_runs(args.runs, "layers.csv") if args.runs else newest_family("layers.csv")
    path = output_path(args.output, runs, "layers.png")
    save(plot(group_runs(runs), args.step), path)


if __name__ == "__main__":
    main(run)
