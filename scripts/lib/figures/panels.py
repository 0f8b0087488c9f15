"""Drawing in a panel: titles, axes and their ticks, lines with the range of their seeds, marks."""

import math

from matplotlib import ticker

from lib.figures.layout import MARKERS, MUTED, PAPER_LETTERS, for_paper, literal, scaled, text_size
from lib.figures.scale import tick_text
from lib.logs import np

THICK, THIN = 1.9, 0.8  # points, of a group's line and of its second one
MARKED, MARKS = 25, 8  # the points of a line of which each has its marker; markers of a longer line
MOST_CORNERS = 200  # of a band, which matplotlib does not simplify as it does lines


def set_panel_titles(panels, titles):
    """Sets the titles of the panels, all in letters of one size, so small that the widest is hardly wider than its panel,
    of at least 8 points. In a paper "during training" is left out, as the axis shows it."""
    drawn = [axes.set_title(literal(text.replace(" during training", "") if for_paper() else text))
             for axes, text in zip(panels, titles)]
    share = min((axes.bbox.width + scaled(0.25) * axes.figure.dpi) / max(title.get_window_extent().width, 1)
                for axes, title in zip(panels, drawn))
    for title in drawn:
        title.set_size(max(PAPER_LETTERS, min(share, 1) * title.get_size()))


def write_unit(axes, text, right=False):
    """Writes an axis's quantity and unit above the axis, horizontally. `right`: at the right edge of the panel."""
    axes.annotate(literal(text), (1 if right else 0, 1), (0, scaled(7)), xycoords="axes fraction",
                  textcoords="offset points", ha="right" if right else "left", size=text_size(10.5), color=MUTED)


def nothing_finite(axes):
    """Writes into a panel why it is empty."""
    axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", color=MUTED)


def whole_x(axes, last, share=1.0, whole=True, first=0):
    """Sets ticks and limits of an x axis from `first` to `last`, which is at this share of the panel's width; `whole`:
    ticks are whole numbers only."""
    most = max(2, min(8, round(share * axes.get_position().width * axes.figure.get_figwidth() / scaled(0.42))))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tick_text(value)))
    pad = 0.02 * (last - first) + 0.05
    axes.set_xlim(first - pad, last + pad)


def band(rows, log=False):
    """(mean, min, max) over axis 0 of the finite values; NaN if there are none. `log`: the geometric mean, as befits a
    logarithmic axis."""
    rows = np.where(np.isfinite(rows), rows, np.nan)
    is_empty = np.isnan(rows).all(axis=0)
    filled = np.where(is_empty, 1.0, rows)
    with np.errstate(divide="ignore"):
        mean = np.nanmean(np.log(filled) if log else filled, axis=0)
    mean = np.exp(mean) if log else mean
    least, most = np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)
    return tuple(np.where(is_empty, np.nan, values) for values in (np.clip(mean, least, most), least, most))


def on_steps(steps, values):
    """(steps, array (runs, steps) or (runs, steps, layers)): the values of several runs, each logged at its own steps,
    on the union of the steps; NaN elsewhere."""
    every = np.unique(np.concatenate(steps))
    table = np.full((len(steps), every.size, *np.shape(values[0])[1:]), np.nan)
    for row, at, value in zip(table, steps, values):
        row[np.searchsorted(every, at)] = value
    return every, table


def thinned(count, most):
    """At most about `most` of the indices 0 … count − 1, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 2))).round().astype(int))


def end_mark(axes, end, color):
    """Draws a cross at `end`, the last finite point (x, y) of a diverged run; at the nearer edge if it lies outside the
    panel."""
    axes.plot(end[0], np.clip(end[1], *axes.get_ylim()), marker="X", markersize=scaled(11), color=color,
              markeredgecolor="white", clip_on=False, zorder=6)


def last_point(x, values):
    """The last (x, value) that is finite; None if there is none."""
    good = np.flatnonzero(np.isfinite(values))
    return (x[good[-1]], values[good[-1]]) if good.size else None


def set_scale(axes, scale):
    """Sets the limits and ticks of a panel's y axis (Scale; None: nothing is finite)."""
    if scale is None:
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        nothing_finite(axes)
        return
    axes.set_yscale(scale.kind)
    axes.set_yticks(*zip(*scale.ticks))
    axes.set_ylim(scale.low, scale.high)  # which a tick at the edge may have moved
    axes.minorticks_off()


def draw(axes, x, rows, group, marker=None, second=False, log=False):
    """Draws a group's line, the mean of `rows` (runs, len(x)), and their band from the smallest to the largest, with
    gaps at values that are not finite and dots at single values between gaps. Without a dash of the group, points;
    `second`: a thin line, the group's second one. `marker`: on some points, so that lines of one grey differ. `log`: as
    in band()."""
    mean, low, high = band(rows, log)
    color = group.color
    if len(rows) > 1:
        starts = np.arange(0, len(x), math.ceil(len(x) / MOST_CORNERS))
        axes.fill_between(np.asarray(x)[starts], np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts),
                          color=color, alpha=0.08 if second else 0.16, linewidth=0, zorder=2)
    apart = math.ceil(len(x) / MARKS) if group.dash and len(x) > MARKED else 1
    good = np.isfinite(mean)
    alone = good & ~np.r_[False, good[:-1]] & ~np.r_[good[1:], False]
    axes.plot(x, mean, color=color, linewidth=scaled(THIN if second else THICK), linestyle=group.dash,
              marker=marker, markersize=scaled(3 if second else 4.2), zorder=3,
              markevery=(MARKERS.index(group.marker) * apart // len(MARKERS), apart))
    if alone.any():
        axes.plot(x[alone], mean[alone], linestyle="", marker=marker or "o", markersize=scaled(5), color=color,
                  zorder=3, markerfacecolor="white" if second else color)


def block_ticks(deepest, most=8):
    """Ticks of an axis of blocks: evenly spaced, about `most`, of usual depths the last block among them."""
    steps = [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10]
    ticks = ticker.MaxNLocator(most, integer=True, min_n_ticks=1, steps=steps).tick_values(0, deepest)
    return [int(tick) for tick in ticks if tick <= deepest]
