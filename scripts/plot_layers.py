#!/usr/bin/env python3
"""Plots what happened in the layers of one or more runs: gradients and activations of the residual stream."""

from figures import (command, depth_panel, group_handles, mark_diverged, name_lines, new_figure, say,
                     scale_y, step_panel, style_legend, when_shown)
from runs import main, shared_settings
from sites import Site

EXAMPLES = """examples:
  scripts/plot_layers.py                                   the newest run and its kin
  scripts/plot_layers.py runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot_layers.py runs/sweep --step 1               at the first update
  scripts/plot_layers.py runs/deep_pre-probe               at initialisation
"""
GRADIENT = "gradient rms of the stream (nats per unit)"
ACTIVATION = "activation rms of the stream (units)"


def plot(groups, step=None):
    """The figure: depth above, at `step` (None: the last); training below, where more than one step was logged."""
    streams = [[Site(run) for run in group.runs] for group in groups]
    every = sum(streams, [])
    when, over_time = when_shown(every, step), max(s.steps.size for s in every) > 1
    depths = {s.rms.shape[1] - 1 for s in every}
    last = f"block {depths.pop()}" if len(depths) == 1 else "last block"

    figure, axes = new_figure(2 if over_time else 1, 2, 3.45, "Gradients and activations of the residual stream",
                              shared_settings(groups), group_handles(groups, max(s.rms.shape[1] for s in every) - 1))
    for panel, name, unit, pick, log in ((axes[0], "Gradient", GRADIENT, lambda s: s.grad, True),
                                         (axes[1], "Activation", ACTIVATION, lambda s: s.rms, False)):
        panel.set_title(f"{name} by depth, {when}")
        say(panel, unit)
        scale_y(panel, depth_panel(panel, groups, streams, pick, step), log)
        panel.set_xlabel("block (0 = embedding output)")
    if over_time:
        gradient_in_time(axes[2], groups, streams, last)
        axes[3].set_title(f"Activation during training, {last}")
        say(axes[3], ACTIVATION)
        scale_y(axes[3], step_panel(axes[3], groups, streams, lambda s: s.rms[:, -1]))
        mark_diverged(axes[3], groups, streams, lambda s: s.rms[:, -1])
    for panel in axes:
        name_lines(panel)
    return figure


def gradient_in_time(axes, groups, streams, last):
    """The gradient of the first and, where it is another, the last block against the step."""

    def first(stream):
        return stream.grad[:, min(1, stream.grad.shape[1] - 1)]

    def final(stream):
        return stream.grad[:, -1]

    two_blocks = last != "block 1"
    which = (last if not two_blocks else f"blocks 1 and {last.split()[1]}" if last != "last block"
             else "first and last block")
    axes.set_title(f"Gradient during training, {which}")
    say(axes, GRADIENT)
    scale_y(axes, step_panel(axes, groups, streams, first, final if two_blocks else None), log=True)
    if two_blocks:
        style_legend(axes, ("block 1", last))
        mark_diverged(axes, groups, streams, final)
    mark_diverged(axes, groups, streams, first)


def run():
    """Reads the command line and writes the picture."""
    command(__doc__, EXAMPLES, "layers.csv", "layers.png", plot, [
        ("--step", {"type": int, "metavar": "N", "help": "step of the upper panels (default: the last logged)"})])


if __name__ == "__main__":
    main(run)
