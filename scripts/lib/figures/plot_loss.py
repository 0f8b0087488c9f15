"""Plots training and validation loss of one or more runs against the step, tokens or seconds, with the losses of
simple models."""

import json
import math

from matplotlib.lines import Line2D

from lib.base.command import ScriptError
from lib.compare.groups import shared_settings
from lib.figures.drawing import drawing
from lib.figures.layout import (NAME_LETTER, end_names, facets, for_paper, group_handles, is_narrow, literal,
                                new_figure, scaled, split_by_values)
from lib.figures.panels import (THICK, band, end_mark, last_point, level_end, marked, name_ends, nothing_finite,
                                on_steps, set_panel_titles, tick_text, ticker, whole_x, write_unit)
from lib.logs import np

MOST_MARKS = 80  # validation losses of a group: more would lie on one another
NEAR = 1.3  # times the uniform level: a loss above it is a first or a diverging one
FAR = 4  # times the uniform level: a validation loss above it would squash the rest
NGRAMS = ("unigram", "bigram", "trigram", "4-gram")
AXES = {"step": "step", "tokens": "tokens trained on", "seconds": "seconds of training"}  # {x: the axis's label}
STEP, TRAIN, VALIDATION, X = range(4)  # columns of loss_table


def reference_levels(run):
    """{name: nats} of the losses of simple models on a run's validation split, as its summary has them: all of them
    once the run is done, the uniform one before."""
    uniform = {"uniform": math.log(size) for size in vocabularies([run])}
    return uniform | {name: run.summary[name] for name in NGRAMS if isinstance(run.summary.get(name), float)}


def common_levels(runs):
    """The reference levels of all runs: those of the run that has most if all have the same text with the same split,
    else none."""
    hashed = all("corpus_hash" in run.summary for run in runs)
    splits = {json.dumps([run.summary["corpus_hash"] if hashed else [run.texts(), run.value("data.val_path")],
                          bool(run.value("data.val_path")), run.value("data.val_fraction")]) for run in runs}
    return max(map(reference_levels, runs), key=len) if len(splits) == 1 else {}


def vocabularies(runs):
    """The sizes of the runs' vocabularies, as far as they are known."""
    return [size for size in (run.summary.get("vocab") for run in runs) if isinstance(size, int) and size > 0]


def smooth(values, to_end=False):
    """A moving median over about a twentieth of the rows, where these are finite: unlike a mean it is no longer high
    once a spike is over. Near the start it narrows, so as not to hide the fall; `to_end`: near the end too, so as to
    follow a diverging loss."""
    reach = round(values.size / 40) if values.size >= 100 else int(values.size >= 12)
    result, finite = np.full_like(values, np.nan), np.flatnonzero(np.isfinite(values))
    for i in finite:
        near = min(reach, i // 4, finite[-1] - i if to_end else reach)
        result[i] = np.median([value for value in values[i - near:i + near + 1] if np.isfinite(value)])
    return result


def limits(training, validation, levels, guessing):
    """(low, high, log) of the y axis for lists of curves: all of it, but for training losses that would squash the
    rest, first or diverging ones; drawing.mark_outside marks these. Logarithmic if a validation loss is so high, or if
    some curve never comes near the losses of models that learn. `guessing`: the loss of an untrained model, used
    without levels; None if unknown."""
    training, validation = ([curve[np.isfinite(curve)] for curve in curves if np.isfinite(curve).any()]
                            for curves in (training, validation))
    curves = training + validation
    if not curves:
        return 0.0, 5.0, False
    low, high = min(map(np.min, curves)), max(map(np.max, curves))
    uniform = levels.get("uniform", guessing or high)
    worst = max(map(np.max, validation), default=0.0)
    if max(map(np.min, curves)) > NEAR * uniform or worst > FAR * uniform:
        low = min((curve[curve > 0].min() for curve in curves if (curve > 0).any()), default=1.0)
        return min(low, levels.get("unigram", low)) / 1.3, 1.3 * max(high, low), True
    high = max(min(high, NEAR * uniform), worst)
    unigram = levels.get("unigram", low)
    low, high = min(low, unigram), max(high, unigram)
    next_below = max((level for level in levels.values() if level < low), default=low)
    if low - next_below < 0.25 * (high - low):  # a level that the model may soon reach
        low = next_below
    if high < uniform < high + 0.3 * (high - low):
        high = uniform
    pad = 0.05 * max(high - low, 0.2)
    return max(0.0, low - pad), high + 1.4 * pad, False


def draw_levels(axes, levels, start=None, exact=False):
    """Draws a dotted line for each level within the plot, up to the names, which begin at `start` as in
    panels.name_ends. Returns {its name: height}, for name_ends; `exact`: names have the loss."""
    low, high = axes.get_ylim()
    shown = {name: level for name, level in levels.items() if low < level < high}
    for level in shown.values():
        axes.axhline(level, xmax=level_end(axes, start), color="#777777", linewidth=scaled(1.1),
                     linestyle=(0, (1.2, 1.8)), zorder=2)
    return {f"{name} {level:.2f}" if exact else name: level for name, level in shown.items()}


def loss_table(run, x):
    """An array of a run's logged steps with the columns STEP, TRAIN and VALIDATION (nats, NaN where there is none) and
    X: the step, or the tokens or seconds that training had taken at it. ScriptError: metrics.csv lacks them."""
    rows = run.rows("metrics.csv", ("step", "train_loss", "val_loss"),
                    "a probe does not train; `plot.py layers` shows it" if run.probe else "not a training run")
    if x == "step":
        return np.column_stack([rows, rows[:, STEP]])
    steps, values = run.progress(x).T
    if not steps.size:
        raise ScriptError(f"{run}: metrics.csv does not say the {x} that training took; draw it by step")
    return np.column_stack([rows, np.interp(rows[:, STEP], [0, *steps], [0, *values])])


def draw_group(axes, group, tables):
    """Draws a group's training loss, smoothed, with the range of its seeds or, for one run, every row; its validation
    loss as the group's marker; crosses where runs diverged. At a step, x is the mean over the seeds, as the loss is."""
    def joined(column):
        return on_steps([tables[run][:, STEP] for run in group.runs], [tables[run][:, column] for run in group.runs])[1]

    x = np.maximum.accumulate(band(joined(X))[0])  # rising also where a slower seed has ended
    mean, least, most = band(joined(TRAIN))
    if len(group.runs) > 1:
        axes.fill_between(x, least, most, color=group.color, alpha=0.16, linewidth=0)
    else:
        axes.plot(x, mean, color=group.color, alpha=0.35, linewidth=scaled(0.9))
    is_marked = not np.isfinite(joined(VALIDATION)).any() or np.isfinite(mean).sum() == 1
    axes.plot(x, smooth(mean, bool(group.diverged)), color=group.color, linewidth=scaled(THICK), zorder=3,
              linestyle=group.dash, label=literal(group.name), marker=group.marker if is_marked else None,
              markevery=marked(x, group.marker), markersize=scaled(5))
    mean, least, most = band(joined(VALIDATION))
    shown = np.flatnonzero(np.isfinite(mean))
    few = shown.size <= 30
    if shown.size > MOST_MARKS:  # evenly, the last and the largest among them
        shown = np.union1d(shown[::-1][::math.ceil(shown.size / MOST_MARKS)], np.nanargmax(most))
    spread = np.stack([mean - least, most - mean])[:, shown] if len(group.runs) > 1 else None
    axes.errorbar(x[shown], mean[shown], yerr=spread, linestyle="", marker=group.marker, color=group.color,
                  markersize=scaled(6.5 if few else 4), markerfacecolor="white",
                  markeredgewidth=scaled(1.7 if few else 1.1), elinewidth=scaled(1.4), zorder=4)
    for run in group.runs:
        if run.diverged:
            if end := last_point(tables[run][:, X], tables[run][:, TRAIN]):
                end_mark(axes, end, group.color)


@drawing
def plot(groups, x="step"):
    """The figure: loss against x, one of AXES; a panel for each of `facets`, all on one scale."""
    runs = [run for group in groups for run in group.runs]
    tables = {run: loss_table(run, x) for run in runs}
    levels = common_levels(runs)
    curves = [[table[:, column] for table in tables.values()] for column in (TRAIN, VALIDATION)]
    low, high, log = limits(*curves, levels, max(map(math.log, vocabularies(runs)), default=None))
    last = max(table[:, X].max() for table in tables.values())
    validated = any(np.isfinite(table[:, VALIDATION]).any() for table in tables.values())
    faceted = facets(groups)
    names = end_names(groups) if len(faceted) == 1 and not for_paper() else []
    columns = min(2, len(faceted))
    finite = {run: np.isfinite(tables[run][:, [TRAIN, VALIDATION]]).any() for run in runs}
    drawn, missing = split_by_values(groups, lambda group: any(finite[run] for run in group.runs))
    marks = marks_of(validated, any(run.diverged and finite[run] for run in runs))
    title = "Training and validation loss" if validated else "Training loss"
    handles = group_handles(drawn, "white" if validated else None)
    figure, panels = new_figure(math.ceil(len(faceted) / columns), columns, 5.0 if len(faceted) == 1 else 3.45, title,
                                shared_settings(groups), handles + (marks if for_paper() else []), notes=missing,
                                panel_titles=len(faceted) > 1, names=["unigram" if is_narrow() else "bits"])
    for axes, (facet, members) in zip(panels, faceted):
        axes.set_ylim(low, high)
        if log:
            axes.set_yscale("log")
        for group in members:
            draw_group(axes, group, tables)
        if not any(finite.values()):
            nothing_finite(axes)
        label_axes(axes, levels if not log else {"uniform": levels.get("uniform", 0.0)}, x, last, names)
    set_panel_titles(panels, [facet for facet, _ in faceted])
    for empty in panels[len(faceted):]:
        empty.remove()
    if not for_paper():
        position = 0.97, 1 - 0.22 / figure.get_figheight()
        figure.legend(handles=marks, loc="upper right", bbox_to_anchor=position, ncol=len(marks), fontsize=10.5,
                      borderpad=0, borderaxespad=0, handlelength=1.5, columnspacing=1.0, handletextpad=0.5)
    return figure


def label_axes(axes, levels, x, last, names):
    """Sets ticks and units, in nats and in bits, and writes the names of lines and of levels, for which it leaves room
    right of the `last` x."""
    width = axes.get_position().width * axes.figure.get_figwidth()
    is_wide = width > 5
    longest = max(map(len, [*names, "unigram 3.08" if is_wide else "unigram"]))
    gap = scaled(0.3 if names else 0.12)  # between the curves and their names
    share = 0.02 if is_narrow() else min(0.6, (gap + scaled(NAME_LETTER * longest)) / width)  # of the panel, for names
    whole_x(axes, last, 1 - share, whole=x != "seconds")
    ticks = [t for t in axes.get_xticks() if 0 <= t <= last]
    axes.set_xlim(-0.02 * last, last * (1 + share / (1 - share)))
    axes.set_xticks(ticks)
    axes.set_xlabel(AXES[x])
    write_unit(axes, "loss (nats per character)")
    scales = [axes.yaxis]
    if not is_narrow():
        write_unit(axes, "loss (bits per character)" if is_wide else "bits", right=True)
        bits = axes.secondary_yaxis("right", functions=(lambda n: n / math.log(2), lambda b: b * math.log(2)))
        bits.spines["right"].set_visible(False)
        bits.tick_params(length=0)
        scales.append(bits.yaxis)
    for axis in scales:
        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: tick_text(v, (1e-3, 1e4))))
        axis.set_minor_locator(ticker.NullLocator())
    start = None if is_narrow() else 1 - share + gap / width
    name_ends(axes, names, start, draw_levels(axes, levels, start, is_wide))


def marks_of(validated, diverged):
    """A legend's handles for the kinds of lines and marks, whatever their group."""
    def mark(marker, label, **style):
        return Line2D([], [], color="#555555", linestyle="", marker=marker, label=label, **style)

    marks = [Line2D([], [], color="#555555", linewidth=scaled(THICK), label="training, smoothed")]
    if validated:
        marks.append(mark("o", "validation", markersize=scaled(6.5), markeredgewidth=scaled(1.7),
                          markerfacecolor="white"))
    return marks + [mark("X", "diverged", markersize=scaled(10), markeredgecolor="white")] * diverged
