"""Drawing in a panel: titles, axes and their ticks, lines with the range of their seeds, marks, names of lines."""

import math

from matplotlib import ticker
from matplotlib.text import Text

from lib.figures.layout import (DOTS, INK, MARKED, MARKERS, MUTED, PAPER_LETTERS, Line2D, for_paper, literal, scaled,
                                text_size)
from lib.figures.scale import scale_between, tick_text
from lib.logs import np

THICK, THIN = 1.9, 0.8  # points, of a group's line and of its second one
MARKS = 8  # markers of a long line
MOST_CORNERS = 200  # of a band, which matplotlib does not simplify as it does lines
LONGEST_LEADER = 0.15  # from a line's end to its name in the column of names, as a share of the panel's width
BLANK = {"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.5}  # behind a text that lies on lines


def set_panel_titles(panels, titles):
    """Removes the panels for which there is no title, and sets the titles of the others: all in letters of one size, so
    small that the widest ends before the next panel, of at least 8 points. A paper's panels have less room: "during
    training" is left out, as the axis shows it."""
    for axes in panels[len(titles):]:
        axes.remove()
    drawn = [axes.set_title(literal(text.replace(" during training", "") if for_paper() else text))
             for axes, text in zip(panels, titles)]
    lefts = sorted({round(axes.bbox.x0) for axes in panels})
    share = 1.0
    for axes, title in zip(panels, drawn):
        right = min((left for left in lefts if left > axes.bbox.x0 + 1), default=axes.figure.bbox.width)
        room = right - axes.bbox.x0 - scaled(0.3) * axes.figure.dpi
        share = min(share, room / max(title.get_window_extent().width, 1))
    for title in drawn:
        title.set_size(max(PAPER_LETTERS, share * title.get_size()))


def write_unit(axes, text, right=False):
    """Writes an axis's quantity and unit above the axis, horizontally. `right`: at the right edge of the panel."""
    axes.annotate(literal(text), (1 if right else 0, 1), (0, scaled(7)), xycoords="axes fraction",
                  textcoords="offset points", ha="right" if right else "left", size=text_size(10.5), color=MUTED)


def nothing_finite(axes, why="no finite values"):
    """Writes the reason into an empty panel."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=MUTED)


def whole_x(axes, last, share=1.0, whole=True, first=0):
    """Sets ticks and limits of an x axis from `first` to `last`, which is at this share of the panel's width; `whole`:
    ticks are whole numbers only."""
    most = max(2, min(8, round(share * axes.get_position().width * axes.figure.get_figwidth() / scaled(0.42))))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1))
    form = "{:.0f}".format if whole and last < 1e6 else tick_text
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: form(value)))
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


def name_ends(axes, names, start=None, levels=None):
    """Writes the names of the labelled lines that end near the right edge, and those of `levels`, {name: height}, in a
    column right of the panel, or in it from `start` on, a share of its width; moved apart where names would overlap. A
    dotted grey line leads from a name to its point. To be called last, when limits and margins are final."""
    width, height = (72 * size for size in axes.get_position().size * axes.figure.get_size_inches())  # points
    to_axes = axes.transData + axes.transAxes.inverted()
    column, row = start or 1 + scaled(14) / width, 1.15 * text_size(10) / height
    ends = [(to_axes.transform((0, level))[1], level_end(axes, start), name, MUTED)
            for name, level in (levels or {}).items()]
    for line in [line for line in axes.lines if line.get_label() in map(literal, names)]:
        good = np.isfinite(line.get_ydata()) & ((line.get_ydata() > 0) | (axes.get_yscale() != "log"))
        if good.any():
            x, y = to_axes.transform(line.get_xydata()[good][-1])
            if column - x < LONGEST_LEADER:
                ends.append((min(max(y, 0.0), 1.0), x, line.get_label(), INK))
    leader = {"arrowstyle": "-", "color": MUTED, "linestyle": DOTS, "linewidth": scaled(0.8), "relpos": (0, 0.5),
              "patchA": None, "shrinkA": scaled(3), "shrinkB": scaled(2)}
    ends.sort(key=lambda end: end[0])
    for (y, x, name, color), text_y in zip(ends, apart([y for y, *_ in ends], row)):
        axes.annotate(name, (x, y), (column, text_y), xycoords="axes fraction", textcoords="axes fraction", va="center",
                      size=text_size(10), color=color, annotation_clip=False, bbox=BLANK, arrowprops=leader, zorder=7)


def level_end(axes, start=None):
    """Where a level's line ends, as a share of the panel's width, if names begin at `start`."""
    return start - scaled(0.04) / (axes.get_position().width * axes.figure.get_figwidth()) if start else 1.0


def put_where_free(axes, note, places, others):
    """Puts an annotation at the first of the places where its text lies on no line and on none of the other texts, else
    on no other text, else at the first place."""
    renderer = axes.figure.canvas.get_renderer()

    def box_of(annotation):  # without its leader
        annotation.update_positions(renderer)
        return Text.get_window_extent(annotation, renderer)

    boxes = [*map(box_of, others)]
    paths = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    free = {False: [], True: []}  # {whether the text lies on a line: places}
    for place in places:
        note.set_position(place)
        box = box_of(note)
        if not any(map(box.overlaps, boxes)):
            near = box.padded(scaled(2) / 72 * axes.figure.dpi)  # half a marker
            free[any(path.intersects_bbox(near, filled=False) for path in paths)].append(place)
    note.set_position([*free[False], *free[True], *places][0])


def apart(heights, least):
    """The rising heights, moved as little as possible until they are `least` apart; within 0 … 1 if there is room.
    Heights that are too close are joined to a block, whose members are `least` apart around their mean."""
    blocks = []  # (centre, number of members)
    for height in heights:
        blocks.append((height, 1))
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < least * (blocks[-1][1] + blocks[-2][1]) / 2:
            (upper, m), (lower, n) = blocks.pop(), blocks.pop()
            centre, half = (upper * m + lower * n) / (m + n), least * (m + n - 1) / 2
            blocks.append((min(max(centre, half), max(1 - half, half)), m + n))
    return [centre + least * (i - (count - 1) / 2) for centre, count in blocks for i in range(count)]


def set_scale(axes, scale):
    """Sets the limits and ticks of a panel's y axis (Scale; None: nothing is finite)."""
    if scale is None:
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        nothing_finite(axes)
        return
    options = {"log": {"nonpositive": "clip"}, "symlog": {"linthresh": 1}}
    axes.set_yscale(scale.kind, **options.get(scale.kind, {}))
    axes.set_yticks(*zip(*scale.ticks))
    axes.set_ylim(scale.low, scale.high)  # which a tick at the edge may have moved
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def draw(axes, x, rows, group, marker=None, second=False, line=True, log=False):
    """Draws a group's line, the mean of `rows` (runs, len(x)), and their band from the smallest to the largest, with
    gaps at values that are not finite and dots at single values between gaps. Without `line`, points; `second`: a thin
    line without a name, the group's second one. `marker`: on some points, so that lines of one grey differ. `log`: as
    in band()."""
    mean, low, high = band(rows, log)
    color, label = group.color, None if second else literal(group.name)
    if len(rows) > 1:
        starts = np.arange(0, len(x), math.ceil(len(x) / MOST_CORNERS))
        axes.fill_between(np.asarray(x)[starts], np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts),
                          color=color, alpha=0.08 if second else 0.16, linewidth=0, zorder=2)
    good = np.isfinite(mean)
    alone = good & ~np.r_[False, good[:-1]] & ~np.r_[good[1:], False]
    axes.plot(x, mean, color=color, linewidth=scaled(THIN if second else THICK), linestyle=group.dash if line else "",
              marker=marker if line or marker else ".", markersize=scaled(3 if second else 4.2), label=label, zorder=3,
              markevery=marked(x, marker) if line and marker else None)
    if alone.any():
        axes.plot(x[alone], mean[alone], linestyle="", marker=marker or "o", markersize=scaled(5), color=color,
                  zorder=3, markerfacecolor="white" if second else color)


def marked(x, marker):
    """The indices of the points of a line that get its marker: all of few blocks, else about eight, evenly along x and
    at other places for another marker."""
    if len(x) <= MARKED + 1 and x[-1] <= MARKED:
        return None
    places = (np.arange(MARKS) + MARKERS.index(marker) / len(MARKERS)) / MARKS
    return sorted({int(index) for index in np.searchsorted(x, x[0] + places * (x[-1] - x[0]))})


def block_ticks(deepest, most=8):
    """Ticks of an axis of blocks: evenly spaced, at most about `most`, with the last block if that is possible."""
    apart = next(n for n in range(1, deepest + 2) if deepest % n == 0 and deepest <= most * n)
    if apart == 1 or deepest >= 3 * apart:
        return list(range(0, deepest + 1, apart))
    apart = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if deepest <= most * n)
    return list(range(0, deepest + 1, apart))


def mark_handles(drawn, diverged):
    """A legend's handles for the marks that panels have: of diverged runs, if `diverged`, and of values outside the y
    axis. `drawn`: [(arrays of the values drawn, Scale)]."""
    def mark(marker, size, label):
        return Line2D([], [], color="#555555", linestyle="", marker=marker, markersize=scaled(size), label=label,
                      markeredgecolor="white")

    values = [(np.concatenate([array[np.isfinite(array)] for array in arrays]), scale) for arrays, scale in drawn]
    outside = any(scale and ((array > scale.high) | (array < scale.low)).any() for array, scale in values)
    return [mark("X", 10, "diverged")] * diverged + [mark("^", 8, "beyond the axis")] * outside


def style_legend(axes, names):
    """Adds a legend of the thick and the thin lines inside the panel, in room made above its lines."""
    handles = [Line2D([], [], color="#555555", linewidth=scaled(width), label=name)
               for width, name in zip((THICK, THIN), names)]
    low, high = axes.get_ylim()
    higher = high * (high / low) ** 0.13 if axes.get_yscale() == "log" else high + 0.13 * (high - low)
    set_scale(axes, scale_between(low, min(higher, 1e307), axes.get_yscale()))
    narrow = {"handlelength": 1, "columnspacing": 0.6, "handletextpad": 0.4}
    is_narrow = axes.get_position().width * axes.figure.get_figwidth() < scaled(3)
    axes.legend(handles=handles, loc="upper right", borderaxespad=0.2, fontsize=text_size(10), ncol=2,
                **(narrow if is_narrow else {"handlelength": 2.2}))
