"""The frame of all figures: the look on a screen or in a paper, the groups' styles, layout and legend. panels.py draws
in the panels. matplotlib's own settings are restored once a figure is drawn."""

import contextlib
import math
import textwrap
import warnings
from collections import Counter

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib.base.keys import PLACED
from lib.compare.groups import MEAN, shared_seeds
from lib.compare.labels import RUN, joined
from lib.figures import matplotlib
from lib.logs import np
from lib.logs.runs import PLACEMENT
from lib.sweeps.grid import CASE

# Okabe and Ito's colours that show on white and on black, the strongest first; grey in place of their yellow and black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK, MARK, MUTED, GRID = "#222222", "#555555", "#666666", "#E3E3E3"
WIDTH, DPI = 10.0, 140  # inches; 1400 pixels
# Points, of a screen's figure and of a paper's. All lengths here are for letters of 11 points: another size of figures
# is another look, as PAPERS are.
LETTERS, PAPER_LETTERS = 11.0, 8.0
PAPERS = {"column": 3.25, "page": 5.5}  # inches
MARKERS = tuple("osD^vPph")  # one per style
DASHES, DOTS = (0, (3.5, 2)), (0, (1, 1.6))
LINES = ("-", DASHES, DOTS)
MOST_LINES, MOST_PANELS = 9, 9  # lines in a panel that has dashes; panels of a figure

LOOK = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#999999",
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
        sizes = {"titlesize": 11 if paper else 12, "titlepad": 24, "linewidth": 0.8}
        matplotlib.rcParams.update({f"axes.{key}": scaled(points) for key, points in sizes.items()})
        matplotlib.rcParams["grid.linewidth"] = scaled(0.8)
        yield


def scaled(length):
    """A length of a screen's figure, in points or inches, scaled to the letters of this look."""
    return length * matplotlib.rcParams["font.size"] / LETTERS


def text_size(points):
    """The size of a text in points, scaled to this look; in a paper at least 8 points."""
    return max(scaled(points), PAPER_LETTERS)


def for_paper():
    """Whether the look is a paper's."""
    return matplotlib.rcParams["font.size"] == PAPER_LETTERS


def is_narrow():
    """Whether the figure is as wide as a column of a paper: it then has one column of panels."""
    return matplotlib.rcParams["figure.figsize"][0] < NARROW


def style(number):
    """(colour, dash, marker) number 0, 1, 2, …: seven colours, each as three kinds of line."""
    colors = len(PALETTE)
    return PALETTE[number % colors], LINES[number // colors % len(LINES)], MARKERS[number % len(MARKERS)]


def placement_styles(placements):
    """{placement: its style}, the same in every figure; lists and pairs of placements get the styles after the named
    ones."""
    names = list(dict.fromkeys([*PLACED, *placements]))
    return {name: style(names.index(name)) for name in placements}


def styled(groups):
    """Sets on each group, and returns the groups:

    lead          the part of its label that the colour stands for
    rest          the part of its label that the dash stands for
    panel         the title of its panel, "" if there is one panel
    color         of `lead`
    dash, marker  of `rest` if the groups have several; else of `lead`

    An example, in which depths have panels:  pre · L 6 · lr 0.1: lead "pre", rest "lr 0.1", panel "L 6"."""
    keys = list(dict.fromkeys(key for group in groups for key in group.parts))
    varying = [key for key in keys if len({group.parts.get(key) for group in groups}) > 1]
    color_keys, panel_keys, dash_keys = assigned_keys(groups, varying or keys)
    for group in groups:
        group.lead, group.rest, group.panel = (joined(group, keys) for keys in (color_keys, dash_keys, panel_keys))
    styles, rests = lead_styles(groups, color_keys), list(dict.fromkeys(group.rest for group in groups))
    for group in groups:
        group.color, group.dash, group.marker = styles[group.lead]
        if len(rests) > 1:
            number = rests.index(group.rest)
            group.dash, group.marker = LINES[number % len(LINES)], MARKERS[number % len(MARKERS)]
    return groups


def is_ramp(groups, keys):
    """Whether these keys are a single one with more numbers than there are colours: it gets a ramp of colours."""
    values = {group.labelled.get(key) if type(group.labelled.get(key)) in (int, float) else None
              for key in keys for group in groups}
    return len(keys) == 1 and len(values) > len(PALETTE) and None not in values


def lead_styles(groups, color_keys):
    """{group.lead: a style}: the placement's own style if the placement alone has colours."""
    if is_ramp(groups, color_keys):
        leads = {joined(group, color_keys): group.labelled[color_keys[0]] for group in groups}
        colors = map(to_hex, matplotlib.colormaps["viridis"].resampled(round(1.1 * len(leads))).colors)
        return {lead: (color, *style(number)[1:]) for number, (lead, color) in
                enumerate(zip(sorted(leads, key=leads.get), colors))}
    placements = {joined(group, color_keys): group.placement for group in groups}
    if list(color_keys) == [PLACEMENT]:
        styles = placement_styles(placements.values())
        return {lead: styles[placement] for lead, placement in placements.items()}
    return {lead: style(number) for number, lead in enumerate(placements)}


def assigned_keys(groups, keys):
    """(color_keys, panel_keys, dash_keys): the keys whose values have a colour, a panel and a dash of their own.

    The first of these rules that applies:

      1. With cases or runs of no sweep, or if placements are equal and groups at most 7, each group has a style in one
         panel: a colour, from the 8th on another dash too.
      2. The first key, which is the placement if labels have it, has the colours, and the others have the three dashes.
         If these are too few, or a panel would have more than 9 lines, others have panels instead, those with most
         values first: 9 panels at most, and at most half as many as groups.
      3. A number of more than 7 values has the colours, and the others have dashes, which are repeated with other
         markers; without such a number placements have the colours; without placements each group has a style.

    The colours of a single number with more than 7 values are a ramp. Examples, of two placements:

      2 norms            colours placement, dashes norm
      15 rates           dashes placement, a ramp of colours rate
      2 norms, 3 rates   colours placement, panels rate, dashes norm (six dashes would look alike)"""
    first, *others = keys
    if {CASE, RUN} & {*keys} or first != PLACEMENT and len(groups) <= len(PALETTE):
        return keys, (), ()
    colors = [color for color, *_ in lead_styles(groups, [first]).values()]
    others.sort(key=lambda key: len({group.parts.get(key) for group in groups}), reverse=True)
    for count in range(len(others) + 1):
        panel_keys, dash_keys = others[:count], others[count:]
        lines = Counter(joined(group, panel_keys) for group in groups)  # of each panel
        dashes = {joined(group, dash_keys) for group in groups}
        has_few = max(lines.values()) <= MOST_LINES and len(dashes) <= len(LINES) and len(set(colors)) == len(colors)
        # With one dash more panels would not help.
        if (has_few or len(dashes) == 1) and len(lines) <= min(MOST_PANELS, len(groups) / 2):
            return [first], panel_keys, dash_keys
    ramp = [key for key in keys if is_ramp(groups, [key])][:1]
    color_keys = ramp or ([first] if first == PLACEMENT else keys)
    return color_keys, (), [key for key in keys if key not in color_keys]


def literal(text):
    """The text with $ escaped, so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


# ---- layout -----------------------------------------------------------------------------------------------------

# Lengths of a screen's figure in inches, from top to bottom, then from left to right.
TITLE_TOP, SUBTITLE_TOP = 0.2, 0.56
LEGEND_TOP, PAPER_LEGEND_TOP = 0.82, 0.15  # with a subtitle of one line; without title and subtitle
SUBTITLE_LINE, LONGEST_SUBTITLE = 0.18, 116  # inches; letters
LEGEND_GAP, LEGEND_ROW = 0.06, 0.235
PANEL_HEADER = 0.55  # the title of a panel and the unit of its axis
X_AXIS = 0.6  # ticks and title of the axis below a panel
NOTES_GAP, NOTE_LINE, NOTES_BOTTOM = 0.1, 0.2, 0.14
EDGE = 0.3  # left of the title, the legend and the notes
Y_AXIS = 0.9  # left of a panel
RIGHT_EDGE = 0.25
LEGEND_ENTRY, LEGEND_LETTER = 0.67, 0.088  # width of a legend's line with the gaps around it; of a letter of its text
NAME_GAP, NAME_LETTER = 0.2, 0.085  # between a panel and a text right of it; width of a letter of the text
PANEL_GAP = 0.52  # between the rows of panels, over the height of a panel
NARROW = 5  # a paper's figure below this width has one column of panels
NOTE_SIZE = 9.5  # points


def _legend_shape(texts, width):
    """(rows, columns) of the flattest legend that fits `width`, in inches, in columns as even as Matplotlib fills
    them."""
    rows, columns = 0, 0
    for rows in range(1, len(texts) + 1):
        columns = math.ceil(len(texts) / rows)
        widths = [scaled(LEGEND_ENTRY + LEGEND_LETTER * max(map(len, part))) for part in np.array_split(texts, columns)]
        if sum(widths) < width - 2 * scaled(EDGE):
            break
    return rows, columns


def new_figure(count, columns, panel_height, title, subtitle, handles, notes=(), beside=""):
    """(figure, axes as a flat list) of a figure with a title, a subtitle and one legend above so many panels in rows of
    `columns`. A paper's figure has no title, as its caption says it, and a narrow one has a single column.

    panel_height  inches of a panel with its title and axis, in a screen's figure
    handles       the legend's
    notes         lines of text below the panels
    beside        the longest text right of a panel"""
    width = matplotlib.rcParams["figure.figsize"][0]
    columns = 1 if is_narrow() else min(columns, count)
    rows = math.ceil(count / columns)
    legend_rows, legend_columns = _legend_shape([handle.get_label() for handle in handles], width)
    subtitle = textwrap.fill(subtitle, LONGEST_SUBTITLE)
    notes = [line for note in notes for line in textwrap.wrap(note, int(120 * width / text_size(NOTE_SIZE)))]
    legend_top = PAPER_LEGEND_TOP if for_paper() else LEGEND_TOP + SUBTITLE_LINE * subtitle.count("\n")
    header = legend_top + LEGEND_GAP + LEGEND_ROW * legend_rows + PANEL_HEADER
    footer = X_AXIS + (NOTES_GAP + NOTE_LINE * len(notes) if notes else 0)
    height = header + rows * panel_height + footer - X_AXIS  # of a screen's figure, as all lengths above
    figure = Figure(figsize=(width, scaled(height)))
    FigureCanvasAgg(figure)
    _write_around_panels(figure, height, title, subtitle, notes)
    if handles:
        _add_legend(figure, handles, legend_columns, (scaled(EDGE) / width, 1 - legend_top / height))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in axes[count:]:
        empty.remove()
    figure.subplots_adjust(top=1 - header / height, bottom=footer / height, hspace=PANEL_GAP)
    _set_widths(figure, columns, beside)
    return figure, axes[:count]


def _write_around_panels(figure, height, title, subtitle, notes):
    """Writes title and subtitle above the panels, but not in a paper's figure, and the notes, a line each, below.
    `height`: the figure's, on a screen."""
    edge = scaled(EDGE) / figure.get_figwidth()
    if not for_paper():
        figure.text(edge, 1 - TITLE_TOP / height, literal(title), size=16, weight="bold", va="top")
        figure.text(edge, 1 - SUBTITLE_TOP / height, literal(subtitle), size=10.5, color=MUTED, va="top")
    for lines_below, note in enumerate(reversed(notes)):
        bottom = NOTES_BOTTOM + NOTE_LINE * lines_below
        figure.text(edge, bottom / height, literal(note), size=text_size(NOTE_SIZE), color=MUTED)


def _add_legend(figure, handles, columns, position):
    legend = figure.legend(handles, ["-"] * len(handles), loc="upper left", bbox_to_anchor=position, ncol=columns,
                           borderpad=0, borderaxespad=0, columnspacing=1.6, handlelength=2.2, handletextpad=0.6)
    for text, handle in zip(legend.get_texts(), handles):  # figure.legend would omit labels that begin with "_"
        text.set_text(handle.get_label())


def _set_widths(figure, columns, beside):
    """Sets the widths of the panels such that axes left of them and the text right of them have room."""
    width = figure.get_figwidth()
    text_width = scaled(NAME_GAP + NAME_LETTER * len(beside)) if beside else 0
    left, right, gap = scaled(Y_AXIS), scaled(RIGHT_EDGE) + text_width, scaled(Y_AXIS) + text_width
    panel_width = (width - left - right - (columns - 1) * gap) / columns
    figure.subplots_adjust(left=left / width, right=1 - right / width, wspace=gap / panel_width)


def line_handle(text, color=MARK, dash="-", marker="", width=2.2):
    """A legend's handle of a line; `width` in points."""
    return Line2D([], [], color=color, linewidth=scaled(width), linestyle=dash, label=literal(text),
                  markersize=scaled(6.5), marker=marker)


def band_handle(text):
    """A legend's handle of a band."""
    return Patch(color=MARK, alpha=0.16, linewidth=0, label=text)


def diverged_handles(has_some):
    """A list with the legend's handle of the crosses of diverged runs, if the figure has some."""
    return [line_handle("diverged", dash="", marker="X")] * has_some


def group_handles(groups, statistic=MEAN):
    """A legend's handles: one handle per group; with several panels, one per colour and one per dash. A paper's figure
    has no subtitle, which tells the seeds of all groups on a screen: it has a handle for the bands. `statistic`: what
    is drawn of the seeds."""
    seeds = shared_seeds(groups)
    bands = [band_handle(f"{statistic} {seeds} seeds")] if statistic and seeds and for_paper() else []
    leads, rests = ({getattr(group, name): group for group in groups} for name in ("lead", "rest"))
    if len(facets(groups)) == 1:
        entries = [(group.legend(None if seeds else statistic), group.color, group.dash, group.marker)
                   for group in groups]
    elif len(rests) == 1:
        entries = [(with_diverged(lead, groups), group.color, group.dash, group.marker)
                   for lead, group in leads.items()]
    else:
        entries = [(with_diverged(lead, groups), group.color, "-", "") for lead, group in leads.items()]
        entries += [(rest or "others", MUTED, group.dash, group.marker) for rest, group in rests.items()]
    return [line_handle(*entry) for entry in entries] + bands


def split_by_values(groups, has_values):
    """(the groups with values to draw, or all if none has; notes on the others and on lines that look alike): a legend
    has only what is drawn."""
    drawn = [group for group in groups if has_values(group)] or groups
    notes = [f"Without a finite value: {group.legend(None)}." for group in groups if group not in drawn]
    alike = len(groups) - len({(group.panel, group.color, group.dash, group.marker) for group in groups})
    return drawn, notes + [f"{alike} of the lines look like others; name fewer runs."] * (alike > 0)


def with_diverged(lead, groups):
    """The text of a lead, with the number of its diverged runs, if any: "post (1 of 6 diverged)"."""
    runs = [run for group in groups if group.lead == lead for run in group.runs]
    count = sum(run.diverged for run in runs)
    return f"{lead} ({count} of {len(runs)} diverged)" if count else lead


def facets(groups):
    """[(title, groups)] of the panels that the groups are drawn in; a single one has no title."""
    panels = {}
    for group in groups:
        panels.setdefault(group.panel, []).append(group)
    return [(title or ("others" if len(panels) > 1 else ""), members) for title, members in panels.items()]
