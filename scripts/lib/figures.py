"""The frame of all figures: the look on a screen or in a paper, styles, layout and legend; panels.py fills the panels.
matplotlib's own settings are restored once a figure is drawn."""

import contextlib
import functools
import itertools
import textwrap
import warnings
from collections import Counter

from lib.grid import CASE
from lib.groups import MEAN, shared_seeds
from lib.keys import PLACEMENTS
from lib.runs import PLACEMENT, matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg  # after runs, which finds a Python that has it
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's colours that show on white and on black, the strongest first; grey in place of their yellow and black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK, MUTED, GRID = "#222222", "#666666", "#E3E3E3"
WIDTH, DPI = 10.0, 140  # inches; 1400 pixels
LETTERS, PAPER_LETTERS = 11.0, 8.0  # points, of a screen's figure and of a paper's
PAPERS = {"column": 3.25, "page": 5.5}  # inches
MARKERS, MARKED = tuple("osD^vPph"), 24  # one marker per group, on lines of at most so many blocks
DASHES, DOTS = (0, (3.5, 2)), (0, (1, 1.6))
LINES = ("-", DASHES, DOTS)
MOST_LINES, MOST_PANELS = 9, 9  # lines in a panel that has dashes; panels of a figure
MOST_NAMES, LONGEST_NAME = 14, 22  # lines that are named at their ends; letters of such a name on a screen

LOOK = {
    "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#999999",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "xtick.color": "#999999", "ytick.color": "#999999",
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "lines.solid_capstyle": "round", "legend.frameon": False,
    "path.simplify_threshold": 0.4, "svg.fonttype": "none", "svg.hashsalt": "normscope", "pdf.fonttype": 42}


@contextlib.contextmanager
def look(paper=None):
    """A context with the settings of these figures, after which the user's own hold again. `paper`: the width in
    inches of a paper's figure; None: a screen's figure."""
    size = PAPER_LETTERS if paper else LETTERS
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name that the font lacks is drawn as boxes
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**LOOK, "font.size": size, "figure.figsize": (paper or WIDTH, 1)})
        for key, at_eleven in (("axes.titlesize", 11 if paper else 12), ("axes.titlepad", 24), ("axes.linewidth", 0.8), ("grid.linewidth", 0.8)):
            matplotlib.rcParams[key] = points(at_eleven)
        yield


def drawing(plot):
    """Decorates a function that makes a figure: it works in the look of a screen or, with `paper`, in that of a
    paper."""
    @functools.wraps(plot)
    def drawn(*args, paper=None, **options):
        with look(paper):
            figure = plot(*args, **options)
        figure.paper = paper
        return figure
    return drawn


def points(size):
    """A size in points that suits letters of 11 points, scaled to the letters of this look."""
    return size * matplotlib.rcParams["font.size"] / LETTERS


inches = points


def letters(size):
    """The size of a text in points, scaled to this look; in a paper at least 8 points."""
    return max(points(size), PAPER_LETTERS)


def for_paper():
    """Whether the look is a paper's."""
    return matplotlib.rcParams["font.size"] == PAPER_LETTERS


def style(number):
    """(colour, dash, marker) number 0, 1, 2, …: seven colours, each as three kinds of line."""
    colors = len(PALETTE)
    return PALETTE[number % colors], LINES[number // colors % len(LINES)], MARKERS[number % len(MARKERS)]


def placement_styles(placements):
    """{placement: its style}, the same in every figure; lists and pairs of placements get the styles after the named
    ones."""
    names = list(dict.fromkeys([*PLACEMENTS, *placements]))
    return {name: style(names.index(name)) for name in placements}


def styled(groups):
    """The groups, each with what tells it apart in a figure: `panel`, the title of its panel; `color`, which stands
    for `lead`; `dash` and `marker`, which stand for `rest`; `name`, written at the end of its line."""
    keys = list(dict.fromkeys(key for group in groups for key in group.parts))
    varying = [key for key in keys if len({group.parts.get(key) for group in groups}) > 1]
    color_keys, panel_keys, dash_keys = assigned_keys(groups, varying or keys)
    for group in groups:
        group.lead, group.rest = label_part(group, color_keys), label_part(group, dash_keys)
        group.panel = label_part(group, panel_keys)
        group.name = label_part(group, [*color_keys, *dash_keys]) if panel_keys else group.label
    styles, rests = lead_styles(groups, color_keys), list(dict.fromkeys(group.rest for group in groups))
    for group in groups:
        group.color, group.dash, group.marker = styles[group.lead]
        if len(rests) > 1:
            number = rests.index(group.rest)
            group.dash, group.marker = LINES[number % len(LINES)], MARKERS[number % len(MARKERS)]
    return groups


def label_part(group, keys):
    """The part of a group's label that is about these keys."""
    return " · ".join(text for key, text in group.parts.items() if key in keys)


def lead_styles(groups, color_keys):
    """{group.lead: a style}: the placement's own style if the placement alone has colours."""
    placements = {label_part(group, color_keys): group.placement for group in groups}
    if list(color_keys) == [PLACEMENT]:
        styles = placement_styles(placements.values())
        return {lead: styles[placement] for lead, placement in placements.items()}
    return {lead: style(number) for number, lead in enumerate(placements)}


def assigned_keys(groups, keys):
    """(color_keys, panel_keys, dash_keys): by which of the keys groups have a colour, a panel and a dash of their own.
    The first key, which is the placement where placements differ, has colours. Uses the fewest panels in which every
    panel's lines can be distinguished. Where the placement is the same and groups are few, and where there are cases,
    which no key tells apart, each has a colour and there is one panel."""
    first, *others = keys
    if CASE in keys or first != PLACEMENT and len(groups) <= len(PALETTE):
        return keys, (), ()
    for count in range(len(others) + 1):
        for panel_keys in itertools.combinations(others, count):
            dash_keys = [key for key in others if key not in panel_keys]
            if are_distinguished(groups, first, panel_keys, dash_keys):
                return [first], panel_keys, dash_keys
    return ([first], (), others) if first == PLACEMENT else (keys, (), ())


def are_distinguished(groups, first, panel_keys, dash_keys):
    """Whether the lines of each panel can be distinguished by colour and dash, and the panels are few beside the
    groups."""
    colors = [color for color, *_ in lead_styles(groups, [first]).values()]
    dashes = {label_part(group, dash_keys) for group in groups}
    sizes = Counter(label_part(group, panel_keys) for group in groups)  # lines of each panel
    has_few_lines = len(set(colors)) == len(colors) and len(dashes) <= len(LINES) and max(sizes.values()) <= MOST_LINES
    has_few_panels = not panel_keys or len(sizes) <= min(MOST_PANELS, len(groups) / 2)
    return (len(dashes) == 1 or has_few_lines) and has_few_panels


def literal(text):
    """The text with $ escaped, so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def _legend_shape(texts, width):
    """(rows, columns) of the flattest legend that fits `width`, in inches; columns are filled first."""
    rows, columns = 0, []
    for rows in range(1, len(texts) + 1):
        columns = [texts[i:i + rows] for i in range(0, len(texts), rows)]
        if sum(inches(0.67 + 0.088 * max(map(len, column))) for column in columns) < width - inches(0.35):
            break
    return rows, len(columns)


def new_figure(rows, columns, panel_height, title, subtitle, handles, panel_titles=True, room=0.0, notes=(), names=(),
               panels=None):
    """A figure with a title, a subtitle of any lines and one legend above its panels; (figure, axes as a flat list).
    `room`: inches left free below the legend; `notes`: lines below the panels; `names`: what name_ends shall write
    beside them; `panels`: how many of rows × columns are needed (None: all). A paper's figure has no title, as its
    caption says it, and a narrow one has a single column. Sizes are those of a screen's figure."""
    width = matplotlib.rcParams["figure.figsize"][0]
    if width < 5:
        rows, columns = panels or rows * columns, 1
    legend_rows, legend_columns = _legend_shape([handle.get_label() for handle in handles], width)
    notes = [line for note in notes for line in textwrap.wrap(note, int(120 * width / letters(9.5)))]
    above = 0.15 if for_paper() else 0.82 + 0.18 * subtitle.count("\n")  # the legend
    header = above + 0.06 + 0.235 * legend_rows + (0.62 if panel_titles else 0.4) + room
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
        legend = figure.legend(handles, ["-"] * len(handles), loc="upper left", bbox_to_anchor=(edge, 1 - above / full),
                               ncol=legend_columns, borderpad=0, borderaxespad=0, columnspacing=1.6, handlelength=2.2,
                               handletextpad=0.6)
        for text, handle in zip(legend.get_texts(), handles):  # given at once, labels that begin with "_" would be left out
            text.set_text(handle.get_label())
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
    dashed_panels = len(facets(groups)) > 1 < len({group.rest for group in groups})  # the legend has fewer words
    return labels if 1 < len(labels) <= MOST_NAMES and max(map(len, labels)) <= longest and not dashed_panels else []


def group_handles(groups, deepest=None):
    """A legend's handles: a group each or, where panels tell the rest, a colour and a dash each; with the markers of
    the lines where blocks are few enough to be marked."""
    def handle(text, color, dash, marker):
        return Line2D([], [], color=color, linewidth=points(2.2), linestyle=dash, label=literal(text), markersize=points(5),
                      marker=marker if deepest is not None and deepest <= MARKED else "")

    if len(facets(groups)) == 1:
        of = None if shared_seeds(groups) else MEAN
        return [handle(group.legend(of), group.color, group.dash, group.marker) for group in groups]
    leads, rests = ({getattr(group, name): group for group in groups} for name in ("lead", "rest"))
    dashed = len(rests) > 1
    return [handle(with_diverged(lead, groups), g.color, "-" if dashed else g.dash, "" if dashed else g.marker) for lead, g in leads.items()] + [
        handle(rest or "others", MUTED, g.dash, g.marker) for rest, g in rests.items() if dashed]


def with_diverged(lead, groups):
    """The name of what groups have in common, with how many of their runs diverged, if any."""
    runs = [run for group in groups if group.lead == lead for run in group.runs]
    lost = sum(run.diverged for run in runs)
    return f"{lead} ({lost} of {len(runs)} diverged)" if lost else lead


def facets(groups):
    """The panels that the groups are drawn in, [(title, groups)]; a single one has no title."""
    parts = {}
    for group in groups:
        parts.setdefault(group.panel, []).append(group)
    return [(title or ("others" if len(parts) > 1 else ""), members) for title, members in parts.items()]
