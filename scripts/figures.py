"""What the plots share of drawing: the look of a figure, lines with the range of their seeds, marks."""

import itertools
import math
import warnings

from keys import PLACEMENTS
from runs import matplotlib, np
from matplotlib import pyplot, ticker  # after runs, which finds a Python that has it
from matplotlib.lines import Line2D

warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name that the font lacks is drawn as boxes

# Okabe and Ito's colours that show on white and on black, the strongest first; grey in place of their yellow and black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK, MUTED, GRID = "#222222", "#666666", "#E3E3E3"
WIDTH, DPI = 10.0, 140  # inches; 1400 pixels
MARKERS, MARKED = "osD^vPph", 24  # a marker a group, where a line has no more blocks than this
DASHES, DOTS = (0, (3.5, 2)), (0, (1, 1.6))
LINES = ("-", DASHES, DOTS)


def style(number):
    """(colour, dash, marker) number 0, 1, 2, …: seven colours, each as three kinds of line."""
    colors = len(PALETTE)
    return PALETTE[number % colors], LINES[number // colors % len(LINES)], MARKERS[number % len(MARKERS)]


def placement_style(name):
    """A placement's style, the same in every figure."""
    return style(list(PLACEMENTS).index(name) if name in PLACEMENTS else len(PLACEMENTS))


def styled(groups):
    """The groups, each with its colour, dash and marker. The colour is its placement's where that differs between groups,
    and the dash and marker are then those of what else differs; else the style is numbered by what differs."""
    variants = list(dict.fromkeys(group.variant for group in groups))
    several = len({group.placement for group in groups}) > 1
    for group in groups:
        varied = style(variants.index(group.variant))
        group.color, group.dash, group.marker = placement_style(group.placement) if several else varied
        if several and len(variants) > 1:
            number = variants.index(group.variant)
            group.dash, group.marker = LINES[number % len(LINES)], MARKERS[number % len(MARKERS)]
    return groups


def literal(text):
    """Text that matplotlib shall not read as a formula."""
    return text.replace("$", r"\$")


def _legend_shape(texts):
    """(rows, columns) of the flattest legend that fits the figure's width; columns are filled first."""
    rows, columns = 0, []
    for rows in range(1, len(texts) + 1):
        columns = [texts[i:i + rows] for i in range(0, len(texts), rows)]
        if sum(0.6 + 0.085 * max(map(len, column)) for column in columns) < WIDTH - 0.5:
            break
    return rows, len(columns)


def new_figure(rows, columns, panel_height, title, subtitle, handles, panel_titles=True, room=0.0, notes=()):
    """A figure with a title, a subtitle of any lines and one legend above its panels; (figure, axes as a flat list).
    `room`: inches left free below the legend; `notes`: lines below the panels."""
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 11, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": "#999999", "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlesize": 12, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 24,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.8,
        "xtick.color": "#999999", "ytick.color": "#999999", "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "lines.solid_capstyle": "round", "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "normscope"})
    legend_rows, legend_columns = _legend_shape([handle.get_label() for handle in handles])
    above = 0.82 + 0.2 * subtitle.count("\n")  # the legend
    header = above + 0.04 + 0.26 * legend_rows + (0.62 if panel_titles else 0.4) + room
    footer = 0.6 + (0.1 + 0.2 * len(notes) if notes else 0)
    height = header + rows * panel_height + footer - 0.6
    figure, axes = pyplot.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False)
    edge = 0.03
    figure.text(edge, 1 - 0.2 / height, literal(title), size=16, weight="bold", va="top")
    figure.text(edge, 1 - 0.56 / height, literal(subtitle), size=10.5, color=MUTED, va="top")
    if handles:
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(edge, 1 - above / height),
                      ncol=legend_columns, borderpad=0, borderaxespad=0, columnspacing=1.6, handlelength=1.6,
                      handletextpad=0.6)
    for i, note in enumerate(notes):
        figure.text(edge, (0.14 + 0.2 * (len(notes) - 1 - i)) / height, literal(note), size=9.5, color=MUTED)
    figure.subplots_adjust(left=0.09, right=0.975, top=1 - header / height, bottom=footer / height,
                           wspace=0.2, hspace=0.52)
    return figure, list(axes.flat)


def say(axes, text, right=False):
    """What an axis shows and its unit, above its upper end: there it is read without turning one's head."""
    axes.annotate(literal(text), (1 if right else 0, 1), (0, 7), xycoords="axes fraction",
                  textcoords="offset points", ha="right" if right else "left", size=10.5, color=MUTED)


def nothing_finite(axes, why="no finite values"):
    """Says in an empty panel why it is empty."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=MUTED)


def whole_x(axes, last):
    """An x axis of whole numbers up to `last`."""
    axes.xaxis.set_major_locator(ticker.MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:.0f}"))
    axes.set_xlim(-0.02 * last - 0.05, 1.02 * last + 0.05)


def band(rows):
    """(mean, min, max) over axis 0 of what is finite; NaN where nothing is."""
    rows = np.where(np.isfinite(rows), rows, np.nan)
    lost = np.isnan(rows).all(axis=0)
    filled = np.where(lost, 0.0, rows)
    return tuple(np.where(lost, np.nan, f(filled, axis=0)) for f in (np.nanmean, np.nanmin, np.nanmax))


def on_steps(steps, values):
    """Rows of several runs, each with its own steps, on all their steps: (steps, array (runs, steps))."""
    every = np.unique(np.concatenate(steps))
    table = np.full((len(steps), every.size), np.nan)
    for row, at, value in zip(table, steps, values):
        row[np.searchsorted(every, at)] = value
    return every, table


def end_mark(axes, x, values, color, marker="X"):
    """A mark at the last finite value: there the run diverged. If that is above the plot, the mark sits on its upper
    edge, and dots lead to it from where the curve leaves."""
    good = np.isfinite(values)
    if not good.any():
        return
    x, values, top = x[good], values[good], axes.get_ylim()[1]
    inside = np.flatnonzero(values <= top)
    if values[-1] > top:
        leaving = slice(inside[-1], inside[-1] + 2) if inside.size else slice(0, 1)
        axes.plot([np.interp(top, values[leaving], x[leaving]), x[-1]], [top, top], color=color, linewidth=1.6,
                  linestyle=DOTS, clip_on=False, zorder=5)
    axes.plot(x[-1], min(values[-1], top), marker=marker, markersize=11, color=color, markeredgecolor="white",
              clip_on=False, zorder=6)


def mark_beyond(axes):
    """Dots and a triangle on an edge of the plot, where lines run above or below it; after the limits are set."""
    low, high = axes.get_ylim()
    for line in [line for line in axes.lines if not line.get_label().startswith("_")]:
        x, y = line.get_data()
        for edge, outside, marker in ((high, y > high, "^"), (low, y < low, "v")):
            for stretch in np.split(np.arange(len(y)), np.flatnonzero(np.diff(outside)) + 1):
                if stretch.size and outside[stretch[0]]:
                    style = {"color": line.get_color(), "clip_on": False}
                    axes.plot(x[stretch], np.full(stretch.size, edge), linewidth=1.6, linestyle=DOTS, zorder=5, **style)
                    axes.plot(np.mean(x[stretch]), edge, marker=marker, markersize=9, markeredgecolor="white", zorder=6,
                              **style)


def name_lines(axes, most=4):
    """Writes the label of each labelled line beside it, if all find room clear of lines and texts; else the legend
    must do. To be called last, when limits and margins are final."""
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    if not 2 <= len(named) <= most:
        return
    between = np.linspace(0, 1, 25)[:, None, None]

    def points(line):  # also between its rows, in pixels
        at = line.get_transform().transform(np.ma.filled(line.get_xydata(), np.nan))
        return (at[:-1] + between * (at[1:] - at[:-1])).reshape(-1, 2) if len(at) > 1 else at

    def distance(other, line):  # in pixels; a name must be nearer to its own line than to another run's
        if other.get_color() == line.get_color():
            return 3 if line.get_linestyle() != "None" else 5  # points are wider than a line
        return 12 if other.get_color() in {l.get_color() for l in named} else 5

    def touch(box, places):
        return ((places > box.min) & (places < box.max)).all(axis=1).any()

    def free(box, line):
        room = axes.bbox
        return (room.x0 < box.x0 and box.x1 < room.x1 and room.y0 < box.y0 and box.y1 < room.y1
                and not any(box.padded(4).overlaps(other) for other in taken)
                and not any(touch(box.padded(distance(other, line)), places) for other, places in curves))

    with np.errstate(invalid="ignore"):
        renderer = axes.figure.canvas.get_renderer()
        curves = [(line, points(line)) for line in axes.lines]
        legend = axes.get_legend()
        taken = [item.get_window_extent(renderer) for item in (*axes.texts, *([legend] if legend else []))]
        written = []
        for line in named:
            at = line.get_xydata()[np.isfinite(line.get_ydata())]
            places = (0.93, 0.87, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25) if len(at) else ()
            for place, (side, up) in itertools.product(places, itertools.product((0, -1, 1), (1, -1))):
                text = axes.annotate(line.get_label(), at[int(place * len(at))], (6 * side, (4 if side else 6) * up),
                                     textcoords="offset points", ha=("center", "left", "right")[side],
                                     va="bottom" if up > 0 else "top", color=line.get_color(), weight="bold",
                                     size=10.5, annotation_clip=False)
                box = text.get_window_extent(renderer)
                if free(box, line):
                    taken.append(box)
                    written.append(text)
                    break
                text.remove()
        if len(written) < len(named):
            for text in written:
                text.remove()


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


def draw(axes, x, rows, group, marker=None, dashed=False, line=True):
    """A group's line, its band, and dots where a line would not show; gaps where values are not finite. Without a line
    its points."""
    mean, low, high = band(rows)
    color, label = group.color, None if dashed else literal(group.label)
    if len(rows) > 1:
        axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0, zorder=2)
    good = np.isfinite(mean)
    alone = good & ~np.r_[False, good[:-1]] & ~np.r_[good[1:], False]
    axes.plot(x, mean, color=color, linewidth=1.9, linestyle=DASHES if dashed else "-" if line else "",
              marker=marker if line or marker else ".", markersize=4.2, label=label, zorder=3)
    if alone.any() and marker is None:
        axes.plot(x[alone], mean[alone], linestyle="", marker="o", markersize=5, color=color, zorder=3,
                  markerfacecolor="white" if dashed else color)


def when_shown(series, step):
    """In words, which step `step` (None: the last) is in these series; of probes, the initialisation."""
    shown = sorted({int(s.steps[s.index(step)]) for s in series})
    if shown == [0]:
        return "at initialisation"
    return f"at step {shown[0]}" if len(shown) == 1 else f"last steps ({shown[0]}–{shown[-1]})"


def seen(groups, drawn):
    """The rows that an axis must show: all, but of groups that diverged no more than 1000 times beyond the others."""
    calm = [rows[np.isfinite(rows) & (rows > 0)] for group, rows in zip(groups, drawn) if not group.diverged]
    calm = np.concatenate([*calm, np.array([])])
    if not calm.size:
        return drawn
    return [np.clip(rows, calm.min() / 1e3, 1e3 * calm.max()) if group.diverged else rows
            for group, rows in zip(groups, drawn)]


def depth_panel(axes, groups, series, pick, step=None, line=True):
    """Lines or points against the block, at one step (None: the last): `series` holds the series of each group's runs
    (each with `steps` and `index`), and `pick` gives a series' values as an array (steps, layers from 0). Returns what
    of it must be seen."""
    drawn, deepest = [], max(pick(s).shape[1] for s in sum(series, [])) - 1
    for group, members, marker in zip(groups, series, MARKERS * len(groups)):
        rows = np.stack([pick(s)[s.index(step)] for s in members])
        draw(axes, np.arange(rows.shape[1]), rows, group, marker if deepest <= MARKED else None, line=line)
        drawn.append(rows)
    whole_x(axes, deepest)
    axes.set_xticks(block_ticks(deepest))
    return seen(groups, drawn)


def block_ticks(deepest, most=8):
    """Ticks of an axis of blocks: at most about `most`, evenly apart, the last block among them where that can be."""
    apart = next(n for n in range(1, deepest + 2) if deepest % n == 0 and deepest <= most * n)
    if apart == 1 or deepest >= 3 * apart:
        return list(range(0, deepest + 1, apart))
    apart = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if deepest <= most * n)
    return list(range(0, deepest + 1, apart))


def step_panel(axes, groups, series, pick, dashed=None):
    """Lines against the step; `pick` gives a series' values, one a step, and `dashed` those of a second line a group.
    Returns what of it must be seen. Crosses come later, with mark_diverged."""
    drawn, drawn_of = [], []
    for group, members in zip(groups, series):
        for chosen, style in ((pick, False), (dashed, True)):
            if chosen:
                steps, rows = on_steps([s.steps for s in members], [chosen(s) for s in members])
                draw(axes, steps, rows, group, dashed=style)
                drawn.append(rows)
                drawn_of.append(group)
    whole_x(axes, max(s.steps[-1] for s in sum(series, [])))
    axes.set_xlabel("step")
    return seen(drawn_of, drawn)


def mark_diverged(axes, groups, series, pick):
    """Crosses where runs diverged; after the limits are set."""
    for group, members in zip(groups, series):
        for one in members:
            if one.run.diverged:
                end_mark(axes, one.steps, pick(one), group.color)


def style_legend(axes, names):
    """Says within the panel, in room made above its lines, what its full and its dashed lines are."""
    handles = [Line2D([], [], color="#555555", linewidth=1.9, linestyle=style, label=name)
               for style, name in zip(("-", DASHES), names)]
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, min(high * (high / low) ** 0.13, 1e307))
    else:
        axes.set_ylim(low, high + 0.13 * (high - low))
    axes.legend(handles=handles, loc="upper right", borderaxespad=0.2, fontsize=10, ncol=2, handlelength=2.2)


def group_handles(groups, deepest):
    """A legend's handles, a group each; with the markers of the lines where blocks are few enough to be marked."""
    markers = MARKERS * len(groups) if deepest <= MARKED else [""] * len(groups)
    return [Line2D([], [], color=g.color, linewidth=2.4, marker=m, markersize=5, label=literal(g.legend()))
            for g, m in zip(groups, markers)]
