"""Plots training and validation loss of one or more runs against the step, tokens or seconds, with the losses of
simple models."""

import math
from collections import namedtuple

from lib.compare.groups import GEOMETRIC, MEAN, shared_settings
from lib.figures.drawing import drawing
from lib.figures.layout import (MUTED, NAME_LETTER, diverged_handles, facets, group_handles, line_handle, new_figure,
                                scaled, split_by_values, text_size)
from lib.figures.panels import (band, draw, end_mark, last_point, nothing_finite, on_steps, set_panel_titles, set_scale,
                                thinned, whole_x, write_unit)
from lib.figures.scale import near, scale_between
from lib.logs import np

MOST_POINTS = 1000  # of a line: a picture is 1400 pixels wide
MOST_MARKS = 80  # validation losses of a group: more would lie on one another
NEAR = 1.3  # times the uniform level: a loss above it is a first or a diverging one
FAR = 4  # times the uniform level: a validation loss above it would squash the rest
NGRAMS = ("unigram", "bigram", "trigram", "4-gram")
AXES = {"step": "step", "tokens": "tokens trained on", "seconds": "seconds of training"}  # {x: the axis's label}
STEP, TRAIN, VALIDATION, X = range(4)  # columns of loss_table

# The losses of a group: `x` and `rows` (seeds, x) of the training loss, each seed's smoothed; `low` and `high`, the
# ends of a band; `at`, the x of the validation loss, its mean, and its smallest and largest over the seeds.
Losses = namedtuple("Losses", "x rows low high at mean least most")


def reference_levels(run):
    """{name: nats} of the losses of simple models on a run's validation split, as its summary has them: all of them
    once the run is done, the uniform one before."""
    uniform = {"uniform": math.log(run.record["vocab"])} if run.record.get("vocab") else {}
    return uniform | {name: run.record[name] for name in NGRAMS if name in run.record}


def common_levels(runs):
    """The reference levels of all runs: those of the run that has most if all have the same text with the same split,
    else none."""
    splits = {(run.text_hash, bool(run.value("data.val_path")), run.value("data.val_fraction")) for run in runs}
    return max(map(reference_levels, runs), key=len) if len(splits) == 1 else {}


def smooth(values, at, to_end=False):
    """The moving median of finite values at these indices: over a twentieth of the rows, over 3 rows where there are
    fewer than 100, and none of fewer than 12; each is the value of a row. Unlike a mean it is no longer high once a
    spike is over. Near the start it narrows, so as not to hide the fall; `to_end`: near the end too, so as to follow a
    diverging loss."""
    reach = round(values.size / 40) if values.size >= 100 else int(values.size >= 12)
    result, finite = np.full(len(at), np.nan), np.isfinite(values)
    last = np.flatnonzero(finite)[-1] if finite.any() else 0
    for place, i in enumerate(at):
        if finite[i]:
            span = min(reach, i // 4, last - i if to_end else reach)
            window = values[i - span:i + span + 1]
            result[place] = np.quantile(window[np.isfinite(window)], 0.5, method="lower")
    return result


def losses_of(group, tables, log, most=MOST_POINTS):
    """The Losses of a group, at about `most` evenly spaced steps. A band is the range of the seeds or, of a single run,
    that of its rows from each step to the next. x is the mean over the seeds, and rises also where a slower seed has
    ended. `log`: as in panels.band."""
    steps = np.unique(np.concatenate([tables[run][:, STEP] for run in group.runs]))
    steps = steps[thinned(steps.size, most)]
    x, rows = np.full((2, len(group.runs), steps.size), np.nan)
    for number, run in enumerate(group.runs):
        table = tables[run]
        here = np.isin(steps, table[:, STEP])
        at = np.searchsorted(table[:, STEP], steps[here])
        x[number, here] = table[at, X]
        rows[number, here] = smooth(table[:, TRAIN], at, run.diverged)
    _, low, high = band(rows)
    if len(group.runs) == 1:
        low, high = (reduce.reduceat(np.where(np.isfinite(table[:, TRAIN]), table[:, TRAIN], np.nan), at)
                     for reduce in (np.fmin, np.fmax))
    return Losses(np.maximum.accumulate(band(x)[0]), rows, low, high, *validation_of(group, tables, log))


def validation_of(group, tables, log):
    """The last four of a group's Losses, at no more than about MOST_MARKS steps, the last and that of the largest loss
    among them."""
    steps = [tables[run][:, STEP] for run in group.runs]
    (_, x), (_, losses) = (on_steps(steps, [tables[run][:, column] for run in group.runs])
                           for column in (X, VALIDATION))
    mean, least, most = band(losses, log)
    shown = np.flatnonzero(np.isfinite(mean))
    if shown.size > MOST_MARKS:
        shown = np.union1d(shown[thinned(shown.size, MOST_MARKS)], np.nanargmax(most))
    return np.maximum.accumulate(band(x)[0])[shown], mean[shown], least[shown], most[shown]


def limits(training, validation, levels):
    """(low, high, log) of the y axis for lists of curves: all of it, but for training losses that would squash the
    rest, first or diverging ones; drawing.mark_outside marks these. Logarithmic if a validation loss is so high, or if
    some curve never comes near the losses of models that learn."""
    training, validation = ([curve[np.isfinite(curve)] for curve in curves if np.isfinite(curve).any()]
                            for curves in (training, validation))
    curves = training + validation
    if not curves:
        return 0.0, 5.0, False
    low, high = min(map(np.min, curves)), max(map(np.max, curves))
    uniform = levels.get("uniform", high)
    worst = max(map(np.max, validation), default=0.0)
    if max(map(np.min, curves)) > NEAR * uniform or worst > FAR * uniform:
        low = min((curve[curve > 0].min() for curve in curves if (curve > 0).any()), default=1.0)
        return min(low, levels.get("unigram", low)) / 1.3, 1.3 * max(high, low), True
    unigram = levels.get("unigram", low)
    low, high = min(low, unigram), max(min(high, NEAR * uniform), worst, unigram)
    next_below = max((level for level in levels.values() if level < low), default=low)
    if low - next_below < 0.25 * (high - low):  # a level that the model may soon reach
        low = next_below
    pad = 0.05 * max(high - low, 0.2)
    return max(0.0, low - pad), high + 1.4 * pad, False


def draw_levels(axes, levels, start=1.0, exact=False):
    """Draws a dotted line for each level within the panel, up to `start`, a share of the panel's width, and its name
    behind it, lower where names would overlap. `exact`: names have the loss."""
    low, high = axes.get_ylim()
    row = 1.2 * text_size(10) / 72 / (axes.get_position().height * axes.figure.get_figheight())
    free = 1.0  # the height from which no name is written yet
    for name, level in sorted(levels.items(), key=lambda item: -item[1]):
        if low < level < high:
            axes.axhline(level, xmax=start, color="#777777", linewidth=scaled(1.1), linestyle=(0, (1.2, 1.8)), zorder=2)
            free = min(free, (axes.transData + axes.transAxes.inverted()).transform((0, level))[1])
            axes.annotate(f"{name} {level:.2f}" if exact else name, (start, free), (scaled(5), 0), va="center",
                          xycoords="axes fraction", textcoords="offset points", size=text_size(10), color=MUTED)
            free -= row


def loss_table(run, x="step"):
    """An array of a run's logged steps with the columns STEP, TRAIN and VALIDATION (nats, NaN where there is none) and
    X: the step, or the tokens or seconds that training had taken at it. ScriptError: metrics.csv lacks them."""
    hint = "a probe does not train; `plot.py layers` shows it" if run.probe else "not a training run"
    return run.rows("metrics.csv", ("step", "train_loss", "val_loss", x), hint)


def draw_group(axes, group, losses, log):
    """Draws a group's Losses: training as a line with a band, validation as the group's marker."""
    if len(losses.rows) == 1:
        axes.fill_between(losses.x, losses.low, losses.high, color=group.color, alpha=0.35, linewidth=scaled(0.9))
    draw(axes, losses.x, losses.rows, group, None if losses.at.size else group.marker, log=log)
    spread = [losses.mean - losses.least, losses.most - losses.mean] if len(losses.rows) > 1 else None
    axes.errorbar(losses.at, losses.mean, yerr=spread, linestyle="", marker=group.marker, color=group.color,
                  markersize=scaled(8), markeredgecolor="white", elinewidth=scaled(1.4), zorder=4)


def loss_scale(runs, training, validation, levels, ylim=None):
    """The Scale of these losses of runs, as limits() has it. Runs that have no levels in common have the highest of
    their uniform levels."""
    uniform = [known["uniform"] for known in map(reference_levels, runs) if "uniform" in known]
    low, high, log = limits(training, validation, ({"uniform": max(uniform)} if uniform else {}) | levels)
    return scale_between(*(ylim or (low, high)), "log" if log else "linear")


def scale_for(tables, levels, ylim=None):
    """The Scale of the losses in these tables of runs, for a picture and for the page. What a diverged run reached must
    not squash the other curves: it counts as far as scale.near() says."""
    others = [table[:1 if run.diverged else None, TRAIN] for run, table in tables.items()]
    curves = [[near(table[:, column], others) if run.diverged else table[:, column] for run, table in tables.items()]
              for column in (TRAIN, VALIDATION)]
    return loss_scale(tables, *curves, levels, ylim)


@drawing
def plot(groups, x="step", ylim=None, last=None):
    """The figure: loss against x, one of AXES; a panel for each of `facets`, all on one scale. `ylim`: (low, high) of
    it; `last`: the number of steps to draw, None for all."""
    tables = {run: loss_table(run, x) for group in groups for run in group.runs}
    if last:
        end = max(table[-1, STEP] for table in tables.values())
        tables = {run: table[table[:, STEP] > end - last] for run, table in tables.items()}
    levels = common_levels(tables)
    scale = scale_for(tables, levels, ylim)
    log, statistic = scale.kind == "log", GEOMETRIC if scale.kind == "log" else MEAN
    losses = {group: losses_of(group, tables, log) for group in groups}
    lost = [(group, end) for group in groups for run in group.diverged
            if (end := last_point(tables[run][:, X], tables[run][:, TRAIN]))]
    validated = any(drawn.at.size for drawn in losses.values())
    faceted = facets(groups)
    finite = [group for group in groups if losses[group].at.size or np.isfinite(losses[group].rows).any()]
    shown, missing = split_by_values(groups, finite.__contains__)
    title = "Training and validation loss" if validated else "Training loss"
    handles = [*group_handles(shown, statistic), line_handle("training, smoothed")]
    handles += [line_handle("validation", dash="", marker="o")] * validated
    handles += diverged_handles(bool(lost))
    figure, panels = new_figure(len(faceted), 2, 5.0 if len(faceted) == 1 else 3.45, title,
                                shared_settings(groups, statistic), handles, notes=missing, beside="bits")
    places = np.concatenate([table[:, X] for table in tables.values()])
    ends = places.min() if last else 0, places.max()
    for axes, (facet, members) in zip(panels, faceted):
        set_scale(axes, scale)
        for group in members:
            if group in finite:
                draw_group(axes, group, losses[group], log)
        for group, end in lost:
            if group in members:
                end_mark(axes, end, group.color)
        if not finite:
            nothing_finite(axes)
        label_axes(axes, levels, x, ends)
    set_panel_titles(panels, [facet for facet, _ in faceted])
    return figure


def label_axes(axes, levels, x, ends):
    """Sets ticks and units, in nats and in bits, and draws the levels, for whose names it leaves room right of the last
    x. `ends`: the first and the last x."""
    first, last = ends
    width = axes.get_position().width * axes.figure.get_figwidth()
    is_wide = width > 5
    share = scaled(0.2 + NAME_LETTER * len("unigram 3.08" if is_wide else "unigram")) / width  # of the panel, for names
    whole_x(axes, last, 1 - share, whole=x != "seconds", first=first)
    ticks = [tick for tick in axes.get_xticks() if first <= tick <= last]
    axes.set_xlim(first - 0.02 * (last - first), last + (last - first) * share / (1 - share))
    axes.set_xticks(ticks)
    axes.set_xlabel(AXES[x])
    write_unit(axes, "loss (nats per character)")
    write_unit(axes, "loss (bits per character)" if is_wide else "bits", right=True)
    bits = axes.secondary_yaxis("right", functions=(lambda n: n / math.log(2), lambda b: b * math.log(2)))
    bits.spines["right"].set_visible(False)
    bits.tick_params(length=0)
    low, high = axes.get_ylim()
    bits.set_yticks(*zip(*scale_between(low / math.log(2), high / math.log(2), axes.get_yscale()).ticks))
    bits.minorticks_off()
    draw_levels(axes, levels, 1 - share + scaled(0.06) / width, is_wide)
