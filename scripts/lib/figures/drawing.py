"""Decorates the functions that make figures: with the look of a screen or a paper, and so that no finite value is cut
off without a mark."""

import functools

from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex

from lib.figures.layout import MUTED, TITLE_TOP, look, scaled, text_size
from lib.figures.scale import tick_text
from lib.logs import np

BLANK = {"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.5}  # behind a text that may lie on lines


def drawing(plot):
    """Decorates a function that makes a figure. The function gets an option `paper`, a width in inches: with it the
    figure is drawn in the look of a paper, else in that of a screen. Values outside a panel's limits are marked, and a
    line on the title's height, which a paper's figure lacks, says what the marks are."""
    @functools.wraps(plot)
    def drawn(*args, paper=None, **options):
        with look(paper):
            figure = plot(*args, **options)
            has_marks = any([mark_outside(axes) for axes in figure.axes])
            if has_marks and not paper:
                figure.text(0.985, 1 - TITLE_TOP / figure.get_figheight(), "▲ ▼: the farthest value beyond the axis",
                            ha="right", va="top", size=text_size(10), color=MUTED)
        figure.paper = paper
        return figure
    return drawn


def mark_outside(axes):
    """Marks what lies outside the limits of the y axis: for each colour an arrow at the upper edge with the largest
    value, and one at the lower edge with the smallest, a row each from the edge inwards. Returns whether there is
    any."""
    drawn, has_marks = [*drawn_points(axes)], False
    for limit, arrow, sign in zip(axes.get_ylim(), "▼▲", (-1, 1)):
        farthest = {}  # {colour: (sign * value, x)}
        for color, points in drawn:
            for (x, y) in points[sign * points[:, 1] > sign * limit]:
                farthest[color] = max(farthest.get(color, (sign * y, x)), (sign * y, x))
        for row, (color, (value, x)) in enumerate(sorted(farthest.items(), key=lambda item: item[1], reverse=True)):
            text, has_marks = tick_text(float(f"{sign * value:.3g}")), True
            right = (axes.transData + axes.transAxes.inverted()).transform((x, limit))[0] > 0.8
            place = scaled(-7 if right else 7), -sign * (2 + 1.3 * text_size(10) * row)
            axes.annotate(f"{text} {arrow}" if right else f"{arrow} {text}", (x, limit), place, color=color,
                          textcoords="offset points", size=text_size(10), ha="right" if right else "left",
                          va="top" if sign > 0 else "bottom", annotation_clip=False, bbox=BLANK, zorder=8)
    return has_marks


def drawn_points(axes):
    """Yields (colour, finite points (x, y)) of each line and of each band or error bar in a panel."""
    for line in axes.lines:
        if line.get_transform() == axes.transData:  # else it is a level across the panel
            yield to_hex(line.get_color()), finite(line.get_xydata())
    for collection in axes.collections:
        if isinstance(collection, (PolyCollection, LineCollection)):
            color = [*collection.get_facecolor(), *collection.get_edgecolor()][0]
            corners = [path.vertices for path in collection.get_paths()]
            yield to_hex(color), finite(np.concatenate([np.empty((0, 2)), *corners]))


def finite(points):
    """The points (x, y) of which both are finite."""
    return points[np.isfinite(points).all(axis=1)]
