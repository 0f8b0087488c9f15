"""Pictures that several experiments of configs/papers share, and what their own pictures are drawn with, in the style
of plot.py."""

import io
from collections import namedtuple

from lib.base.files import write_atomically
from lib.base.keys import PLACED
from lib.figures.drawing import drawing
from lib.figures.layout import DASHES, DOTS, INK, MARKERS, MUTED, PALETTE, Line2D, look, new_figure, placement_styles
from lib.figures.panels import draw, set_scale, whole_x, write_unit
from lib.figures.scale import scale_of
from lib.figures.plot_final import draw_losses, set_values
from lib.logs import np
from papers.lib.papers import UNIGRAM
from PIL import Image  # Matplotlib depends on it

Line = namedtuple("Line", "name color dash", defaults=["-"])  # a dash, or a marker for points
Panel = namedtuple("Panel", "title unit probes first_layer log")  # of `by_layer`
HEIGHT = 3.1  # inches, of a panel
STYLES = placement_styles(PLACED)  # {placement: (colour, dash, marker)}
COLORS = {name: color for name, (color, _, _) in STYLES.items()}


def save(figure, path):
    """Writes the figure as a PNG with few colours: the page shows it, and the repository keeps it."""
    file, small = io.BytesIO(), io.BytesIO()
    with look():
        figure.savefig(file, format="png", dpi=100)
    Image.open(file).convert("RGB").quantize(160, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    write_atomically(path, small.getvalue())


def figure_of(panels, title, subtitle, lines, names=()):
    """A figure with a row of panels and a legend of these lines (name, colour, dash or marker); (figure, axes)."""
    handles = [Line2D([], [], color=color, label=name, linewidth=2.4, linestyle="" if style in MARKERS else style,
                      marker=style if style in MARKERS else None) for name, color, style in lines]
    return new_figure(1, panels, HEIGHT, title, subtitle, handles, panel_titles=panels > 1, names=names)


def depth_ticks(axes, depths):
    """A logarithmic x axis with a tick at each depth that is measured, except where ticks would touch."""
    shown = depths[:1]
    for depth in depths[1:]:
        if depth >= 1.5 * shown[-1]:
            shown = [*shown, depth]
    axes.set_xscale("log")
    axes.set_xticks(shown, [str(depth) for depth in shown])
    axes.minorticks_off()
    axes.set_xlabel("blocks (L)")


def seeds_of(runs, ranges="bands"):
    """A subtitle: how many seeds the lines and their ranges show."""
    seeds = len({row.get("seed") for row in runs.rows})
    return f"mean (lines) and range ({ranges}) of {seeds} seeds" if seeds > 1 else "one seed"


@drawing
def losses_by_rate(runs, title, panels, lines):
    """Final validation losses against the learning rate, a panel and a line for each choice of runs."""
    colors = {name: COLORS.get(name, color) for name, color in zip(lines, PALETTE)}
    markers = dict(zip(lines, "os^D" + "o" * len(lines)))
    figure, axes = figure_of(len(panels), title, f"{seeds_of(runs, 'bars')}; dotted: the unigram level, {UNIGRAM}",
                             [(name, color, "-") for name, color in colors.items()])
    rates = sorted({row["lr"] for row in runs.rows}, key=float)
    for panel, (name, shared) in zip(axes, panels.items()):
        panel.set_title(name)
        set_values(panel, "learning rate", [float(rate) for rate in rates])
        for label, own in lines.items():
            losses = {float(rate): runs.losses(**shared, **own, lr=rate) for rate in rates}
            draw_losses(panel, losses, Line(label, colors[label]), markers[label])
        panel.axhline(UNIGRAM, color=MUTED, linewidth=1, linestyle=DOTS)
        panel.set_ylim(min(runs.losses()) - 0.1, 3.2)
        write_unit(panel, "final validation loss (nats)")
    return figure


@drawing
def by_layer(title, panels, lines, subtitle, xlabel=None, steps=None):
    """Lines or points by layer, or by step if there are `steps`, with the range of their seeds and, dashed, the law of
    each that has one. `panels`: list of Panel, whose `probes` are {name: (measured (seeds, layers), law (layers) or
    None)}; `lines`: {name: Line}."""
    figure, axes = figure_of(len(panels), title, subtitle, lines.values())
    for axis, panel in zip(axes, panels):
        axis.set_title(panel.title)
        write_unit(axis, panel.unit)
        for name, (measured, law) in panel.probes.items():
            line, layers = lines[name], panel.first_layer + np.arange(measured.shape[1])
            layers = layers if steps is None else steps
            has_points = line.dash in MARKERS
            draw(axis, layers, measured, line, line.dash if has_points else None, line=not has_points)
            if law is not None:
                color = line.color if has_points else INK
                axis.plot(layers, law, color=color, linewidth=1.2, linestyle=DASHES, zorder=5)
        whole_x(axis, layers[-1])
        axis.set_xlabel(xlabel or ("block" if panel.first_layer else "block (0 = embedding)"))
        alike = [other for other in panels if other is panel or other.unit == panel.unit != ""]  # share a scale
        set_scale(axis, scale_of([measured for other in alike for measured, _ in other.probes.values()], panel.log))
    return figure


def beside_laws(title, panels):
    """Points by layer, with dashed lines for the laws that scripts/predict.py has."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.probes))
    spare = iter((INK, MUTED, *PALETTE[4:], INK))  # colours for names that are no placement
    lines = {}
    for name in names:
        color, marker = (STYLES[name][0], STYLES[name][2]) if name in STYLES else (next(spare), MARKERS[-1])
        lines[name] = Line(name, color, marker)
    measured, _ = next(iter(panels[0].probes.values()))
    count = f"{len(measured)} seed{'s' * (len(measured) > 1)}"
    return by_layer(title, panels, lines, f"{count}: mean (points) and range (bands); dashed: the law of each "
                    "(scripts/predict.py)")
