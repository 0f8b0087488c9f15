#!/usr/bin/env python3
"""Plots training and validation loss of one or more runs against the step, beside what simple models reach."""

import argparse
import json
import math
import sys
from pathlib import Path

from runs import (MUTED, band, cross, find_runs, group_runs, literal, main, name_lines, new_figure, newest_family,
                  nothing_finite, np, on_steps, output_path, printable, save, say, shared_settings, whole_x)
from matplotlib.lines import Line2D  # after runs, which finds a Python that has it

EXAMPLES = """examples:
  scripts/plot_loss.py                                     the newest run and its kin
  scripts/plot_loss.py runs/quickstart/pre runs/quickstart/post -o loss.png
  scripts/plot_loss.py runs/seed-1 runs/seed-2 runs/seed-3 the mean of three seeds, and their range
"""
SMOOTHING = 0.1  # added to every count, as `normscope eval` does


def read_characters(path):
    text = Path(path).read_bytes().decode("utf-8-sig")
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def reference_levels(run):
    """(ln V, unigram level) of a run's corpus, in nats; None for what cannot be told."""
    data = run.config.get("data", {})
    paths = data.get("path", [])
    size = run.summary.get("vocab")
    uniform = math.log(size) if isinstance(size, int) and size > 0 else None
    try:
        text = np.concatenate([read_characters(p) for p in (paths if isinstance(paths, list) else [paths])])
        apart = read_characters(data["val_path"]) if data.get("val_path") else None
        # floor((1 - val_fraction) N), less what rounding loses of a whole number
        split = math.floor((1 - data.get("val_fraction", 0.1)) * text.size + 2 * np.finfo(float).eps * text.size)
    except (OSError, TypeError, ValueError) as error:
        print(f"[plot] note: no unigram level, the corpus cannot be read: {printable(error)}", file=sys.stderr)
        return uniform, None
    train, val = (text[:split], text[split:]) if apart is None else (text, apart)
    vocab, codes = np.unique(np.concatenate([train, val]), return_inverse=True)
    counts = np.bincount(codes[:train.size], minlength=vocab.size)
    nats = -np.log((counts + SMOOTHING) / (train.size + SMOOTHING * vocab.size))
    predicted = codes[train.size + 1:]  # the first character of the split has no context and is not predicted
    return math.log(vocab.size), float(nats[predicted].mean()) if predicted.size else None


def common_levels(runs):
    """The reference levels if all runs read the same text, else none: a line must hold for every curve."""
    if len({json.dumps(run.config.get("data", {}), sort_keys=True) for run in runs}) > 1:
        return None, None
    return reference_levels(next((run for run in runs if run.summary), runs[0]))


def smooth(values, to_end=False):
    """A moving average over about a twentieth of the rows. Near the start it narrows, so as not to hide the fall;
    `to_end`: near the end too, so as to follow a diverging loss."""
    reach = round(values.size / 40) if values.size >= 100 else int(values.size >= 12)
    result = np.empty_like(values)
    for i in range(values.size):
        near = min(reach, i // 4, values.size - 1 - i if to_end else reach)
        result[i] = np.mean(values[i - near:i + near + 1])
    return result


def limits(curves, levels):
    """(low, high) of the y axis: all of it, unless a first or diverging loss would squash the rest."""
    finite = np.concatenate([c[np.isfinite(c)] for c in curves] + [np.array([])])
    if not finite.size:
        return 0.0, 5.0
    low, high = finite.min(), finite.max()
    uniform = levels[0] or high
    typical = max((np.median(c[np.isfinite(c)]) for c in curves if np.isfinite(c).any()), default=high)
    if high > 1.5 * uniform:
        high = max(1.15 * uniform, min(high, 1.15 * typical if typical < 4 * uniform else 0.0))
        low = min(low, high - 0.5)
    if levels[1] is not None:
        low, high = min(low, levels[1]), max(high, levels[1])
    if levels[0] is not None and high < levels[0] < high + 0.3 * (high - low):
        high = levels[0]
    pad = 0.05 * max(high - low, 0.2)
    return max(0.0, low - pad), high + 1.4 * pad


def plot(groups):
    runs = [run for group in groups for run in group.runs]
    tables = {run: run.rows("metrics.csv", ("step", "train_loss", "val_loss"), "a probe does not train; plot_layers.py "
                            "shows it" if run.probe else "not a training run") for run in runs}
    levels = common_levels(runs)
    curves = [table[:, 1] for table in tables.values()] + [table[:, 2] for table in tables.values()]
    low, high = limits(curves, levels)
    last = max(table[-1, 0] for table in tables.values())

    validated = any(np.isfinite(table[:, 2]).any() for table in tables.values())
    handles = [Line2D([], [], color=g.color, linewidth=2.4, label=literal(g.legend())) for g in groups]
    figure, (axes,) = new_figure(1, 1, 5.0, "Training and validation loss" if validated else "Training loss",
                                 shared_settings(groups), handles, panel_titles=False)
    axes.set_ylim(low, high)
    for group in groups:
        members = [tables[run] for run in group.runs]
        steps, losses = on_steps([t[:, 0] for t in members], [t[:, 1] for t in members])
        mean, least, most = band(losses)
        if len(members) > 1:
            axes.fill_between(steps, least, most, color=group.color, alpha=0.16, linewidth=0)
        else:
            axes.plot(steps, mean, color=group.color, alpha=0.35, linewidth=0.9)
        good = np.isfinite(mean)
        axes.plot(steps[good], smooth(mean[good], bool(group.diverged)), color=group.color, linewidth=2.1, zorder=3,
                  label=literal(group.label), marker="o" if good.sum() == 1 else None, markersize=5)
        steps, losses = on_steps([t[:, 0] for t in members], [t[:, 2] for t in members])
        mean, least, most = band(losses)
        good = np.isfinite(mean)
        axes.errorbar(steps[good], mean[good], yerr=np.stack([mean - least, most - mean])[:, good]
                      if len(members) > 1 else None, linestyle="", marker="D", color=group.color,
                      markersize=6.5 if good.sum() <= 30 else 4, markerfacecolor="white",
                      markeredgewidth=1.7 if good.sum() <= 30 else 1.1, elinewidth=1.4, zorder=4)
        for run in group.diverged:
            cross(axes, tables[run][:, 0], tables[run][:, 1], group.color)

    if not any(np.isfinite(curve).any() for curve in curves):
        nothing_finite(axes)
    whole_x(axes, last)
    ticks = [t for t in axes.get_xticks() if 0 <= t <= last]
    end = 1.16 * last  # room for the reference lines' labels, which no curve crosses
    axes.set_xlim(-0.02 * last, end)
    axes.set_xticks(ticks)
    for level, name in zip(levels, ("uniform, ln V", "unigram")):
        if level is not None and low < level < high:
            axes.axhline(level, color="#777777", linewidth=1.1, linestyle=(0, (1.2, 1.8)), zorder=2)
            axes.annotate(f"{name} {level:.2f}", (end, level), (-4, 4), textcoords="offset points", ha="right",
                          va="bottom", size=10, color=MUTED)
    axes.set_xlabel("step")
    say(axes, "loss (nats per character)")
    say(axes, "loss (bits per character)", right=True)
    bits = axes.secondary_yaxis("right", functions=(lambda n: n / math.log(2), lambda b: b * math.log(2)))
    bits.spines["right"].set_visible(False)
    bits.tick_params(length=0)
    figure.subplots_adjust(left=0.055, right=0.945)
    styles = [Line2D([], [], color="#555555", linewidth=2.1, label="training, smoothed")]
    if validated:
        styles.append(Line2D([], [], color="#555555", linestyle="", marker="D", markersize=6.5, markeredgewidth=1.7,
                             markerfacecolor="white", label="validation"))
    if any(group.diverged for group in groups):
        styles.append(Line2D([], [], color="#555555", linestyle="", marker="X", markersize=10,
                             markeredgecolor="white", label="diverged"))
    figure.legend(handles=styles, loc="upper right", bbox_to_anchor=(0.97, 1 - 0.22 / figure.get_figheight()),
                  ncol=len(styles), fontsize=10.5, borderpad=0, borderaxespad=0, handlelength=1.6, columnspacing=1.4)
    name_lines(axes)
    return figure


def run():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run or sweep folder (default: the newest run below "
                        "runs/ and those that differ from it only in placement, norm or seed)")
    parser.add_argument("-o", "--output", metavar="FILE", help="PNG to write, an SVG beside it (default: loss.png "
                        "beside the first run)")
    args = parser.parse_args()
    runs = find_runs(args.runs, "metrics.csv") if args.runs else newest_family("metrics.csv")
    path = output_path(args.output, runs, "loss.png")
    save(plot(group_runs(runs)), path)


if __name__ == "__main__":
    main(run)
