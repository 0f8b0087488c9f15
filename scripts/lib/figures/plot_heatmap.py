"""Draws every layer at every logged step of one or more runs as a map, whose colour is the size of the activation or
of its gradient."""

import math

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.patches import Patch, Rectangle

from lib.base.command import ScriptError
from lib.compare.groups import shared_settings
from lib.figures import matplotlib
from lib.figures.drawing import drawing
from lib.figures.layout import (MUTED, X_AXIS, for_paper, is_narrow, line_handle, literal, new_figure, scaled,
                                text_size)
from lib.figures.panels import band, block_ticks, on_steps, write_unit
from lib.figures.scale import near, scale_between
from lib.logs import np
from lib.logs.runs import shortened
from lib.logs.sites import Site

# (member of HeatMap, title, unit, colour map): the maps are perceptually uniform, and readable with any kind of colour
# vision; there are two, as there are two scales.
QUANTITIES = (("rms", "activation rms", "units", "viridis"), ("grad", "gradient rms", "nats per unit", "plasma"))
HATCH = {"facecolor": "#EDEDED", "edgecolor": "#9A9A9A", "hatch": "/////", "linewidth": 0}
LOST = (0, (2, 1.5))  # the dash of the line where a run diverged
ZERO = "white"  # the colour of a 0, which a logarithmic scale lacks
LEAST_SPAN = 2  # a factor: the colours of smaller differences are alike
STATISTIC = "geometric mean of"  # seeds
MAP_HEIGHT, MAP_GAP = 1.7, 0.98  # inches, of a map and between two
SCALE_HEIGHT, SCALE_GAP = 0.13, 0.85  # inches of a colour scale, and between it and the first of its maps


def several_steps(run, site="stream"):
    """A site of a run, of which a map needs several steps."""
    logged = Site(run, site)
    if logged.steps.size < 2:
        raise ScriptError(f"{run}: one step is logged, a map needs two; `plot.py layers` shows it")
    return logged


class HeatMap:
    """A group's map: `steps`, and `rms` and `grad` as arrays (steps, layers 0..L), the geometric mean of its seeds
    where finite; NaN where no seed's value is, or the layer has no such site. `first`: the first layer that has it.
    `divergences`: the steps at which seeds diverged."""

    def __init__(self, group, site):
        maps = [several_steps(run, site) for run in group.runs]
        self.group, self.first = group, maps[0].first
        for name in ("rms", "grad"):
            self.steps, values = on_steps([m.steps for m in maps], [getattr(m, name) for m in maps])
            setattr(self, name, band(values, log=True)[0])
        self.divergences = [run.diverged_at(self.steps[-1]) for run in group.diverged]


def color_scale(maps, name):
    """(low, high) of a colour scale for all maps' finite values above 0, of diverged runs as far as scale.near()
    says."""
    values = {m: getattr(m, name)[:, m.first:] for m in maps}
    sound = [values[m][:1] if m.divergences else values[m] for m in maps]
    values = np.concatenate([(near(values[m], sound) if m.divergences else values[m]).ravel() for m in maps])
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (values.min(), values.max()) if values.size else (1, 1)
    pad = max(1.0, math.sqrt(LEAST_SPAN * low / high))
    return low / pad, high * pad


def edges(steps):
    """The boundaries between the cells of these steps on a logarithmic axis, halfway between neighbours."""
    middle = np.sqrt(steps[1:] * steps[:-1])
    return np.concatenate([[steps[0]**2 / middle[0]], middle, [steps[-1]**2 / middle[-1]]])


@drawing
def plot(groups, site="stream"):
    """The figure: activation left and gradient right, blocks upward, one colour scale for all groups; a row a group."""
    maps = [HeatMap(group, site) for group in groups]
    subject = "residual stream" if site == "stream" else site
    narrow = is_narrow()  # all maps of one quantity, then all of the other
    figure, axes = new_figure(2 * len(maps), 2,
                              MAP_HEIGHT + MAP_GAP + (X_AXIS - MAP_GAP + SCALE_HEIGHT + SCALE_GAP) / len(maps),
                              f"The {subject} at every layer and step", shared_settings(groups, STATISTIC),
                              mark_handles(maps))
    figure.subplots_adjust(hspace=MAP_GAP / MAP_HEIGHT, wspace=0.12)
    for half, (name, title, unit, colors) in enumerate(QUANTITIES):
        panels = axes[half * len(maps):(half + 1) * len(maps)] if narrow else axes[half::2]
        norm = LogNorm(*color_scale(maps, name))
        scale_title = title if for_paper() else f"{title} of the {subject}"
        draw_color_scale(panels, norm, colors, f"{scale_title} ({unit})")
        for panel, heat_map in zip(panels, maps):
            draw_map(panel, heat_map, name, norm, colors)
            if half == 0 or narrow:
                panel.set_title(literal(shortened(heat_map.group.legend(STATISTIC), 90)), wrap=True)
        panels[-1].set_xlabel("step")
    return figure


def mark_handles(maps):
    """A legend's handles for the marks that these maps have."""
    handles, values = [], np.concatenate([getattr(heat_map, name)[:, heat_map.first:].ravel() for heat_map in maps
                                          for name, *_ in QUANTITIES])
    if np.isnan(values).any():
        handles.append(Patch(label="not finite, or no row", **HATCH))
    if (values == 0).any():
        handles.append(Patch(label="zero", facecolor=ZERO, edgecolor=MUTED))
    if any(heat_map.divergences for heat_map in maps):
        handles.append(line_handle("diverged; beyond the scale: the colour of its end", "black", LOST, "v", 1.2))
    return handles


def draw_map(axes, heat_map, name, norm, colors):
    """Draws one map: hatching for the steps that it covers, and the finite cells upon it."""
    first, values = heat_map.first, getattr(heat_map, name)[:, heat_map.first:]
    x, y = edges(heat_map.steps), np.arange(first, first + values.shape[1] + 1) - 0.5
    axes.grid(False)
    axes.add_patch(Rectangle((x[0], y[0]), x[-1] - x[0], y[-1] - y[0], zorder=0.5, **HATCH))
    axes.set_xscale("log")  # the first steps, where most happens, are as wide as the many later ones
    axes.set_xlim(x[0], x[-1])
    axes.set_xticks(*zip(*((step, text) for step, text in scale_between(x[0], x[-1], "log").ticks if step >= 1)))
    axes.minorticks_off()
    axes.set_ylim(y[0], y[-1])
    deepest = first + values.shape[1] - 1
    axes.set_yticks([tick for tick in block_ticks(deepest, 6) if tick >= first])
    write_unit(axes, "block" if first else "block (0 = embedding output)")
    values = np.where(values == 0, norm.vmin / 2, values.clip(norm.vmin, norm.vmax))  # a logarithm has no 0
    shown = np.ma.masked_invalid(values.T)
    color_map = matplotlib.colormaps[colors].with_extremes(under=ZERO)
    axes.pcolormesh(x, y, shown, norm=norm, cmap=color_map, rasterized=True, zorder=1)
    for step in heat_map.divergences:
        axes.axvline(step, color="black", linewidth=scaled(1.2), linestyle=LOST, zorder=3)
        axes.plot([step], [y[-1]], marker="v", markersize=scaled(8), color="black", clip_on=False, zorder=4)


def draw_color_scale(panels, norm, colors, label):
    """A colour scale above its maps, which make room for it."""
    figure, top, bottom = panels[0].figure, panels[0].get_position(), panels[-1].get_position()
    inch = scaled(1) / figure.get_figheight() / (top.y1 - bottom.y0)  # a share of the height of all maps
    bar = figure.colorbar(ScalarMappable(norm, colors), ax=[*panels], location="top",
                          fraction=SCALE_HEIGHT * inch, pad=SCALE_GAP * inch)
    bar.ax.xaxis.tick_bottom()
    bar.ax.set_box_aspect(None)
    bar.outline.set_visible(False)
    bar.ax.set_xticks(*zip(*scale_between(norm.vmin, norm.vmax, "log").ticks))
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=3, labelsize=text_size(10))
    bar.ax.set_title(literal(label), size=text_size(10.5), weight="normal", color=MUTED, pad=scaled(5))
