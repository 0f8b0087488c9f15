"""What the plots share of a figure: its look, on a screen or in a paper, its styles, layout and legend; panels.py fills its
panels. Nothing of it stays: matplotlib's own settings are untouched once a figure is drawn."""

import contextlib
import functools
import textwrap
import warnings

from lib.keys import PLACEMENTS
from lib.groups import MEAN, shared_seeds
from lib.runs import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg  # after runs, which finds a Python that has it
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's colours that show on white and on black, the strongest first; grey in place of their yellow and black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK, MUTED, GRID = "#222222", "#666666", "#E3E3E3"
WIDTH, DPI = 10.0, 140  # inches; 1400 pixels
LETTERS, PAPER_LETTERS = 11.0, 8.0  # points, of a screen's figure and of a paper's
PAPERS = {"column": 3.25, "page": 5.5}  # inches
MARKERS, MARKED = tuple("osD^vPph"), 24  # a marker a group, where a line has no more blocks than this
DASHES, DOTS = (0, (3.5, 2)), (0, (1, 1.6))
LINES = ("-", DASHES, DOTS)
MOST_NAMES, LONGEST_NAME = 14, 22  # lines that are named at their ends, and letters of such a name on a screen

LOOK = {
    "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#999999",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "xtick.color": "#999999", "ytick.color": "#999999",
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "lines.solid_capstyle": "round", "legend.frameon": False,
    "path.simplify_threshold": 0.4, "svg.fonttype": "none", "svg.hashsalt": "normscope", "pdf.fonttype": 42}


@contextlib.contextmanager
def look(paper=None):
    """matplotlib as these figures need it, whatever the user's own settings, which hold again afterwards. `paper`: the width in
    inches of a paper's figure; None: a screen's."""
    size = PAPER_LETTERS if paper else LETTERS
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name that the font lacks is drawn as boxes
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**LOOK, "font.size": size, "figure.figsize": (paper or WIDTH, 1)})
        for key, at_eleven in (("axes.titlesize", 11 if paper else 12), ("axes.titlepad", 24), ("axes.linewidth", 0.8), ("grid.linewidth", 0.8)):
            matplotlib.rcParams[key] = points(at_eleven)
        yield


def drawing(plot):
    """Of a function that makes a figure: it does so in the look of a screen, or with `paper` in that of a paper."""
    @functools.wraps(plot)
    def drawn(*args, paper=None, **options):
        with look(paper):
            figure = plot(*args, **options)
        figure.paper = paper
        return figure
    return drawn


def points(size):
    """A size that is meant beside letters of 11 points, beside those of this look."""
    return size * matplotlib.rcParams["font.size"] / LETTERS


inches = points


def letters(size):
    """The size of a text; in a paper none is smaller than its 8 points."""
    return max(points(size), PAPER_LETTERS)


def for_paper():
    """Whether the look is a paper's."""
    return matplotlib.rcParams["font.size"] == PAPER_LETTERS


def style(number):
    """(colour, dash, marker) number 0, 1, 2, …: seven colours, each as three kinds of line."""
    colors = len(PALETTE)
    return PALETTE[number % colors], LINES[number // colors % len(LINES)], MARKERS[number % len(MARKERS)]


def placement_styles(placements):
    """{placement: its style}, the same in every figure but for lists and pairs of placements."""
    placements = list(dict.fromkeys(placements))
    styles = {name: style(list(PLACEMENTS).index(name)) for name in placements if name in PLACEMENTS}
    for name in placements:
        if name not in PLACEMENTS:  # of a colour that is free, if there is one
            numbers = range(len(PLACEMENTS) + len(styles), len(PLACEMENTS) + len(styles) + len(PALETTE))
            used = {color for color, *_ in styles.values()}
            styles[name] = next((style(number) for number in numbers if style(number)[0] not in used), style(numbers[0]))
    return {name: styles[name] for name in placements}


def styled(groups):
    """The groups, each with its colour, dash and marker. The colour is its placement's where that differs between groups,
    and the dash and marker are then those of what else differs; else the style is numbered by what differs."""
    variants = list(dict.fromkeys(group.variant for group in groups))
    styles = placement_styles(group.placement for group in groups)
    several, by_panel = len(styles) > 1, crowded(groups)
    for group in groups:
        number = variants.index(group.variant)
        group.color, group.dash, group.marker = styles[group.placement] if several else style(number)
        if several and len(variants) > 1 and not by_panel:
            group.dash, group.marker = LINES[number % len(LINES)], MARKERS[number % len(MARKERS)]
        group.name = group.placement if by_panel else group.label
    return groups


def crowded(groups):
    """Whether placements and another key differ, and so many lines, or lines so alike, are drawn in a panel for each value of the
    other key."""
    variants = {group.variant for group in groups}
    styles = placement_styles(group.placement for group in groups)
    return len(styles) > 1 and 1 < len(variants) <= 6 and (
        len(groups) > 8 or len(variants) > len(LINES) or len({color for color, *_ in styles.values()}) < len(styles))


def literal(text):
    """Text that matplotlib shall not read as a formula."""
    return text.replace("$", r"\$")


def _legend_shape(texts, width):
    """(rows, columns) of the flattest legend that fits `width`, in inches; columns are filled first."""
    rows, columns = 0, []
    for rows in range(1, len(texts) + 1):
        columns = [texts[i:i + rows] for i in range(0, len(texts), rows)]
        if sum(inches(0.6 + 0.085 * max(map(len, column))) for column in columns) < width - inches(0.5):
            break
    return rows, len(columns)


def new_figure(rows, columns, panel_height, title, subtitle, handles, panel_titles=True, room=0.0, notes=(), names=()):
    """A figure with a title, a subtitle of any lines and one legend above its panels; (figure, axes as a flat list).
    `room`: inches left free below the legend; `notes`: lines below the panels; `names`: what name_ends shall write beside them.
    A paper's has no title, its caption says it, and a narrow one a single column. Sizes are those of a screen's figure."""
    width = matplotlib.rcParams["figure.figsize"][0]
    if width < 5:
        rows, columns = rows * columns, 1
    legend_rows, legend_columns = _legend_shape([handle.get_label() for handle in handles], width)
    notes = [line for note in notes for line in textwrap.wrap(note, int(120 * width / letters(9.5)))]
    above = 0.15 if for_paper() else 0.82 + 0.2 * subtitle.count("\n")  # the legend
    header = above + 0.04 + 0.26 * legend_rows + (0.62 if panel_titles else 0.4) + room
    footer = 0.6 + (0.1 + 0.2 * len(notes) if notes else 0)
    full = header + rows * panel_height + footer - 0.6
    height = inches(full)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    edge = inches(0.3) / width
    if not for_paper():
        figure.text(edge, 1 - 0.2 / full, literal(title), size=16, weight="bold", va="top")
        figure.text(edge, 1 - 0.56 / full, literal(subtitle), size=10.5, color=MUTED, va="top")
    if handles:
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(edge, 1 - above / full),
                      ncol=legend_columns, borderpad=0, borderaxespad=0, columnspacing=1.6, handlelength=2.2,
                      handletextpad=0.6)
    for i, note in enumerate(notes):
        figure.text(edge, (0.14 + 0.2 * (len(notes) - 1 - i)) / full, literal(note), size=letters(9.5), color=MUTED)
    axes = figure.subplots(rows, columns, squeeze=False)
    named = inches(0.2 + 0.085 * max(map(len, names), default=0)) if names else 0
    left, right = inches(0.9), inches(0.25) + named
    panel = (width - left - right - (columns - 1) * (inches(0.9) + named)) / columns
    figure.subplots_adjust(left=left / width, right=1 - right / width, top=1 - header / full, bottom=footer / full,
                           wspace=(inches(0.9) + named) / panel, hspace=0.52)
    return figure, list(axes.flat)


def end_names(groups):
    """The names to write at lines' ends: all groups' names, or none where they would leave the panels too narrow."""
    labels, width = list(dict.fromkeys(group.name for group in groups)), matplotlib.rcParams["figure.figsize"][0]
    longest = LONGEST_NAME if width == WIDTH else 12 if width < 5 else 6  # letters
    return labels if 1 < len(labels) <= MOST_NAMES and max(map(len, labels)) <= longest else []


def group_handles(groups, deepest=None):
    """A legend's handles, a group each, or a placement each where panels tell the rest; with the markers of the lines where
    blocks are few enough to be marked."""
    marked = deepest is not None and deepest <= MARKED
    of = None if shared_seeds(groups) else MEAN
    texts = [(g.legend(of), g) for g in groups]
    if crowded(groups):
        texts = [(with_diverged(name, groups), g) for name, g in {g.placement: g for g in groups}.items()]
    return [Line2D([], [], color=g.color, linewidth=points(2.2), linestyle=g.dash, marker=g.marker if marked else "",
                   markersize=points(5), label=literal(text)) for text, g in texts]


def with_diverged(placement, groups):
    """The placement's name with how many of its runs diverged, if any."""
    runs = [run for group in groups if group.placement == placement for run in group.runs]
    lost = sum(run.diverged for run in runs)
    return f"{placement} ({lost} of {len(runs)} diverged)" if lost else placement


def facets(groups):
    """The panels that the groups are drawn in, [(title, groups)]: one without a title or, where that is too crowded, one for each
    value of what differs beside the placement."""
    if not crowded(groups):
        return [("", groups)]
    parts = {}
    for group in groups:
        parts.setdefault(group.variant, []).append(group)

    def title(members):  # what labels say beside the placement: "L 12"
        words = [[part for part in group.label.split(" · ") if part != group.placement] for group in members]
        return " · ".join(min(words, key=len)) or "others"

    return [(title(members), members) for members in parts.values()]
