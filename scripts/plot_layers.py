#!/usr/bin/env python3
"""Plots what happened in the layers of one or more runs: gradients and activations of the residual stream."""

import textwrap
from operator import attrgetter

import laws
from figures import (DASHES, Line2D, band, depth_panel, drawing, end_names, entitle, facets, group_handles, mark_beyond, mark_diverged,
                     name_ends, new_figure, points, say, scale_y, step_panel, style_legend, when_shown)
from plot_command import command, loader
from runs import PlotError, main, np, shared_settings
from sites import UNLOGGED, Site

EXAMPLES = """examples:
  scripts/plot_layers.py                                   the newest run and its kin
  scripts/plot_layers.py runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot_layers.py runs/sweep --step 1               at the first update
  scripts/plot_layers.py runs/deep_pre-probe               at initialisation
  scripts/plot_layers.py --theory runs/deep_pre-probe      beside the laws of signal propagation
"""
GRADIENT = "gradient rms of the stream (nats per unit)"
ACTIVATION = "activation rms of the stream (units)"
KINDS = {"grad": ("Gradient", GRADIENT, True), "rms": ("Activation", ACTIVATION, False)}  # name, unit, whether on a log axis
LAW = "law at initialisation (gradient: through the last block)"
LAW_WIDTH = 1.2


@drawing
def plot(groups, step=None, theory=False):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, where more than one step
    was logged and there is one facet. `theory`: depth as points, and the laws of initialisation as dashed lines."""
    streams = {group: [Site(run) for run in group.runs] for group in groups}
    every, parts, names = sum(streams.values(), []), facets(groups), end_names(groups)
    over_time = max(s.steps.size for s in every) > 1 and len(parts) == 1
    deepest = max(s.rms.shape[1] for s in every) - 1
    subtitle, handles = shared_settings(groups), group_handles(groups, deepest)
    if theory:
        subtitle += "\n" + textwrap.fill(laws.in_words([law_of(s, step)["broken"] for s in every]), 116)
        for handle in handles if not over_time else ():  # then there are points only
            handle.set_linestyle("" if handle.get_marker() else "-")
        handles.append(Line2D([], [], color="#555555", linewidth=points(LAW_WIDTH), linestyle=DASHES, label=LAW))
    figure, axes = new_figure(len(parts) + over_time, 2, 3.45, "Gradients and activations of the residual stream",
                              subtitle, handles, names=names)
    seen = {"grad": [], "rms": []}
    for row, (facet, members) in enumerate(parts):
        series = [streams[group] for group in members]
        for panel, (site, (name, unit, _)) in zip(axes[2 * row:], KINDS.items()):
            entitle(panel, f"{name} by depth, {facet or when_shown(every, step)}")
            say(panel, unit)
            drawn = depth_panel(panel, members, series, attrgetter(site), step, line=not theory)
            if theory:
                drawn += law_lines(panel, members, series, drawn, step, site)
            seen[site] += drawn
            panel.set_xlabel("block (0 = embedding output)")
    for panel, site in zip(axes[:2 * len(parts)], [*KINDS] * len(parts)):  # one scale for all facets
        scale_y(panel, seen[site], KINDS[site][2])
        mark_beyond(panel)
    if over_time:
        in_time(axes[2:], groups, list(streams.values()))
    for panel in axes:
        name_ends(panel, names)
    return figure


def in_time(panels, groups, streams):
    """Against the step, the gradient of the first and, where it is another, the last block; and the activation of the last."""

    def first(stream):
        return stream.grad[:, min(1, stream.grad.shape[1] - 1)]

    def final(stream):
        return stream.grad[:, -1]

    def activation(stream):
        return stream.rms[:, -1]

    depths = {s.rms.shape[1] - 1 for s in sum(streams, [])}
    last = f"block {depths.pop()}" if len(depths) == 1 else "last block"
    two = last != "block 1"
    which = last if not two else f"blocks 1 and {last.split()[1]}" if last != "last block" else "first and last block"
    entitle(panels[0], f"Gradient during training, {which}")
    say(panels[0], GRADIENT)
    scale_y(panels[0], step_panel(panels[0], groups, streams, first, final if two else None), log=True)
    if two:
        style_legend(panels[0], ("block 1", last))
        mark_diverged(panels[0], groups, streams, final)
    mark_diverged(panels[0], groups, streams, first)
    entitle(panels[1], f"Activation during training, {last}")
    say(panels[1], ACTIVATION)
    scale_y(panels[1], step_panel(panels[1], groups, streams, activation))
    mark_diverged(panels[1], groups, streams, activation)
    for panel in panels:
        mark_beyond(panel)


def law_of(stream, step):
    """{"rms", "grad" (1 at the last block), "broken"} of the run of a stream, at a step."""
    run, model = stream.run, stream.run.config.get("model", {})
    trained = run.probe and any(first_gains(run) != 1)  # --from: the config does not tell
    try:
        return {"rms": np.sqrt(laws.mean_square(model)), "grad": np.array(laws.gradient(model)),
                "broken": laws.broken(model, int(stream.steps[stream.index(step)]), not run.probe, trained)}
    except KeyError as error:
        raise PlotError(f"{run}: damaged config.json: its model lacks or has no law for {error}") from None
    except (ArithmeticError, IndexError, TypeError, ValueError):
        raise PlotError(f"{run}: damaged config.json: no law follows from its model") from None


def first_gains(run):
    """The rms of the gains of block 1's norms in a probe; 1 each before training."""
    names = [f"blocks.0.{name}.weight" for name in ("attn_norm", "ffn_norm", "attn_post_norm", "ffn_post_norm")]
    if not (run.folder / "params.csv").exists():
        return np.array([])  # copied without it
    return run.rows("params.csv", ("rms",), UNLOGGED, keep=("param", names), some=False)[:, 0]


def law_lines(axes, groups, streams, measured, step, site):
    """Draws each group's law, that of the gradient scaled to meet the mean of the last block's; returns what shall be
    seen of it: no more than 10 times beyond what was measured, lest a law of unchecked growth leave all else flat."""
    drawn = []
    for group, members, rows in zip(groups, streams, measured):
        law = law_of(members[0], step)[site] * (band(rows)[0][-1] if site == "grad" else 1)  # seeds change no law
        axes.plot(law, color=group.color, linewidth=points(LAW_WIDTH), linestyle=DASHES, zorder=2.5)
        positive = rows[np.isfinite(rows) & (rows > 0)]
        if positive.size:
            drawn.append(np.clip(law, positive.min() / 10, positive.max() * 10))
    return drawn


load = loader("layers.csv", plot)


def run():
    """Reads the command line and writes the picture."""
    command(__doc__, EXAMPLES, "layers.csv", "layers.png", plot, [
        ("--step", {"type": int, "metavar": "N", "help": "step of the upper panels (default: the last logged)"}),
        ("--theory", {"action": "store_true", "help": "draw the laws at initialisation too, and say which of their "
                      "assumptions the runs break"})])


if __name__ == "__main__":
    main(run)
