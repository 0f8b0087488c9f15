"""Pictures of experiments, drawn as plot.py draws its own."""

import io
from collections import namedtuple

from lib.base.files import write_atomically
from lib.base.keys import PLACED
from lib.figures import curves
from lib.figures.curves import Curve, Extra, Measure, draw_extras, draw_panel, is_log, statistic_of, with_scales
from lib.figures.drawing import drawing
from lib.figures.layout import (DASHES, DOTS, INK, MARKERS, MUTED, PALETTE, line_handle, look, new_figure,
                                placement_styles)
from lib.figures.panels import set_panel_titles
from lib.figures.plot_final import draw_by_key
from lib.figures.plot_loss import limits
from lib.logs import np
from papers.lib.papers import UNIGRAM
from papers.lib.papers_results import Probed
from PIL import Image  # Matplotlib depends on it

HEIGHT = 3.1  # inches, of a panel
BESIDE_PLACEMENTS = (INK, PALETTE[6], PALETTE[3], PALETTE[5])  # colours of names that are no placement
THEORY = "dashed: theory (scripts/predict.py)"  # for subtitles
# What a panel shows. `probes`: {name of a line: Probed}, with a column for each block from `first` on, or for each
# value of `x`: ("step", steps), where the axis begins at `first`, or (name of a key, its values). `level`: of a dotted
# line across the panel. Panels of a unit share a scale.
Panel = namedtuple("Panel", "title unit probes log first x level", defaults=[False, 0, ("block", None), None])
Line = namedtuple("Line", "name color dash marker")


def save(figure, path):
    """Writes the figure as a PNG with few colours: the page shows it, and the repository keeps it."""
    file, small = io.BytesIO(), io.BytesIO()
    with look():
        figure.savefig(file, format="png", dpi=100)
    Image.open(file).convert("RGB").quantize(160, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    write_atomically(path, small.getvalue())


def lines_of(names, second=()):
    """{name: Line}. Placements have their styles of plot.py, and a name such as "pre, QK norm" has that of "pre".
    `second`: the names whose lines would hide others or look like them; they are dashed and have another marker."""
    leads = {name: name.partition(", ")[0] for name in names}
    styles = placement_styles([lead for lead in leads.values() if lead in PLACED])
    others = dict.fromkeys(lead for lead in leads.values() if lead not in PLACED)
    for lead, color, marker in zip(others, BESIDE_PLACEMENTS if styles else PALETTE, MARKERS):
        styles[lead] = (color, "-", marker)
    lines = {name: Line(name, *styles[lead]) for name, lead in leads.items()}
    return lines | {name: lines[name]._replace(dash=DASHES, marker=MARKERS[-1]) for name in second}


@drawing
def picture_of(title, panels, note="", points=False, second=(), ylim=None):
    """The figure of a list of Panel. `note`: text to add to the subtitle; `points`: draw points instead of lines by
    block; `second`: as lines_of takes it; `ylim`: (low, high) of the y axes; None: those that the values need."""
    lines = lines_of(dict.fromkeys(name for panel in panels for name in panel.probes), second)
    if points:
        lines = {name: line._replace(dash="") for name, line in lines.items()}
    shown = with_scales([as_curves(panel, lines, points) for panel in panels], False, ylim)
    seeds = sorted({len(curve.rows) for panel in shown for curve in panel.curves})
    count = f"{statistic_of(shown)} {' or '.join(map(str, seeds))} seeds" if seeds != [1] else "one seed"
    columns = 2 if len(panels) == 4 else len(panels)
    figure, axes = new_figure(len(panels), columns, HEIGHT, title, " · ".join(filter(None, (count, note))),
                              [line_handle(*line) for line in lines.values()])
    for axis, panel, (key, values) in zip(axes, shown, (panel.x for panel in panels)):
        if key in ("block", "step"):
            draw_panel(axis, panel)
        else:
            draw_by_key(axis, key, panel.scale, panel.measure.unit, {
                curve.group: dict(zip(values, curve.rows.T.tolist())) for curve in panel.curves}, is_log(panel))
            draw_extras(axis, panel.extras)
    set_panel_titles(axes, [panel.title for panel in panels])
    return figure


def as_curves(panel, lines, points):
    """The panel as curves.py has it."""
    kind, x = panel.x
    shown, extras = [], [] if panel.level is None else [Extra(panel.level, MUTED, DOTS)]
    for name, probed in panel.probes.items():
        at = panel.first + np.arange(probed.measured.shape[1]) if x is None else np.array(x)
        shown.append(Curve(lines[name], at, probed.measured, [False] * len(probed.measured)))
        if probed.law is not None:
            extras.append(Extra(probed.law, lines[name].color if points else INK, DASHES, x=at))
    measure = Measure("", "", panel.unit, panel.log)
    return curves.Panel(measure, panel.title, kind == "step", panel.first, shown, (), extras)


def losses_by_rate(title, panels, lines):
    """The function picture(runs): final validation losses against the learning rate, a panel and a line for each choice
    of runs."""
    def picture(runs):
        rates = sorted({row["lr"] for row in runs.rows}, key=float)
        shown = [Panel(name, "final validation loss (nats)", {
            label: Probed(np.array([runs.losses(**shared, **own, lr=rate) for rate in rates]).T)
            for label, own in lines.items()}, x=("learning rate", [*map(float, rates)]), level=UNIGRAM)
                 for name, shared in panels.items()]
        low, high, _ = limits([], [np.array(runs.losses())], {"unigram": UNIGRAM})
        return picture_of(title, shown, "dotted: the unigram level", ylim=(low, high))

    return picture
