"""Draws what the experiments of configs/papers found, in the style of the other plots; a picture each."""

import io
from collections import namedtuple

from lib.figures import DASHES, DOTS, INK, LINES, MARKERS, MUTED, PALETTE, Line2D, drawing, look, new_figure, placement_styles
from lib.keys import PLACEMENTS
from lib.panels import draw, name_ends, say, scale_y, whole_x
from lib.papers_run import by_theory
from lib.papers_tables import by_amplification, has_learnt
from lib.runs import matplotlib, np
from PIL import Image  # after runs, which finds a Python that has it: matplotlib depends on it

Line = namedtuple("Line", "name color dash", defaults=["-"])
HEIGHT = 3.1  # inches, of a panel
OF_PLACEMENTS = placement_styles(PLACEMENTS)
STYLES = {name: line_style[:2] for name, line_style in OF_PLACEMENTS.items()}  # colour, dash
COLORS = {name: color for name, (color, _) in STYLES.items()}
POINTS = {name: (color, marker) for name, (color, _, marker) in OF_PLACEMENTS.items()}


def save(figure, path):
    """Writes the figure as a PNG with few colours: it is kept beside the page."""
    file = io.BytesIO()
    with look():
        figure.savefig(file, format="png", dpi=100)
    Image.open(file).convert("RGB").quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)


def figure_of(panels, title, subtitle, lines, names=()):
    """A figure with a row of panels and a legend of these lines (name, colour, style or marker)."""
    handles = [Line2D([], [], color=color, label=name, linewidth=2.4, linestyle="" if style in MARKERS else style,
                      marker=style if style in MARKERS else None) for name, color, style in lines]
    return new_figure(1, panels, HEIGHT, title, subtitle, handles, panel_titles=panels > 1, names=names)


def depth_ticks(axes, depths):
    """A logarithmic x axis with a tick at each depth that is measured, but where ticks would touch."""
    shown = depths[:1]
    for depth in depths[1:]:
        shown = shown + [depth] if depth >= 1.5 * shown[-1] else shown
    axes.set_xscale("log")
    axes.set_xticks(shown, [str(depth) for depth in shown])
    axes.minorticks_off()
    axes.set_xlabel("blocks (L)")


@drawing
def xiong(found):
    depths = sorted({layers for _, layers in found})
    near = [layers for layers in depths if layers <= 14]
    colors = dict(zip(near, matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(near)))))
    figure, axes = figure_of(3, "Gradient of the FFN's second matrix at initialisation",
                             f"{len(found['pre', depths[0]][0])} seeds: mean (lines) and range (bands). Xiong et al. 2020, theorem 1.",
                             [(f"L = {layers}", colors[layers], "-") for layers in near], ("pre", "post"))
    for panel, placement in zip(axes, ("pre", "post")):
        panel.set_title(f"{placement}, by block")
        for layers in near:
            draw(panel, np.arange(1, layers + 1), found[placement, layers][0], Line(f"L = {layers}", colors[layers]))
        whole_x(panel, near[-1])
        panel.set_xlabel("block")
    axes[2].set_title("Last block, by depth")
    for placement in ("pre", "post"):
        draw(axes[2], depths, np.array([found[placement, layers][0][:, -1] for layers in depths]).T,
             Line(placement, COLORS[placement]), "o")
    depth_ticks(axes[2], depths)
    top = max(norms.max() for norms, _ in found.values())
    for panel in axes:
        say(panel, "|dW2| (nats per unit)")
        panel.set_ylim(0, 1.08 * top)
    name_ends(axes[2], ("pre", "post"))
    return figure


def beside_laws(title, panels):
    """A drawing of points measured by layer and, dashed, of the law of each. `panels` makes of what was found [(title, unit, {name:
    (measured, an array (seeds, layers), law)}, first layer, whether the axis is logarithmic)]."""

    @drawing
    def plot(found):
        shown = panels(found)
        names = list(dict.fromkeys(name for _, _, pairs, *_ in shown for name in pairs))
        spare = iter((INK, MUTED, *PALETTE[4:], INK))  # of what is no placement
        lines = {name: Line(name, *(POINTS.get(name) or (next(spare), MARKERS[-1]))) for name in names}
        seeds = len(next(iter(shown[0][2].values()))[0])
        figure, axes = figure_of(len(shown), title, f"{seeds} seed{'s' * (seeds > 1)}: mean (points) and range (bands); dashed: the law of each "
                                 "(scripts/predict.py)", lines.values())
        for panel, (name, unit, pairs, first, log) in zip(axes, shown):
            panel.set_title(name)
            say(panel, unit)
            for label, (measured, law) in pairs.items():
                blocks, line = np.arange(first, first + len(law)), lines[label]
                draw(panel, blocks, measured, line, line.dash, line=False)
                panel.plot(blocks, law, color=line.color, linewidth=1.2, linestyle=DASHES)
            whole_x(panel, blocks[-1])
            panel.set_xlabel("block" if first else "block (0 = embedding output)")
            scale_y(panel, [measured for measured, _ in pairs.values()], log=log)
        return figure

    return plot


growth = beside_laws("Mean square of the residual stream at initialisation",
                     lambda found: [("", "mean square (units²)", found, 0, True)])
laws = beside_laws("Laws of a fresh network", lambda found: [
    ("cos(x_0, x_l), T 1", "", found["share"], 0, False),
    ("|dx_l| over |dx_L|, post, T 1", "", found["activations"], 0, True),
    ("Attention's entropy, T 64", "nats", found["entropy"], 1, False)])
theory = beside_laws("Before training: probes, and what theory expects of them", lambda found: [
    (title, unit, {name: pairs for name, pairs in found[what].items() if name in COLORS}, 0, True)
    for what, title, unit in (("grad", "Gradient rms of the stream", "nats per unit"), ("rms", "Activation rms of the stream", "units"))])


@drawing
def identity(found):
    placements = list(dict.fromkeys(row["norm_placement"] for row in found.rows))
    depth = found.measured("angle").shape[1]
    figure, axes = figure_of(2, f"What each of {depth} trained blocks does",
                             seeds_of(found),
                             [(placement, *STYLES[placement]) for placement in placements])
    for panel, kind, title, unit in ((axes[0], "angle", "Angle between a block's input and output", "degrees"),
                                     (axes[1], "skip", "Rise of the loss without the block", "nats per character")):
        panel.set_title(title)
        say(panel, unit)
        for placement in placements:
            draw(panel, np.arange(1, depth + 1), found.measured(kind, norm_placement=placement), Line(placement, *STYLES[placement]), "o")
        whole_x(panel, depth)
        panel.set_xlabel("block")
    axes[0].set_ylim(0)
    return figure


@drawing
def residual(found):
    styles = {("pre", True): ("pre, with residuals", PALETTE[0], "-"), ("pre", False): ("pre, without", PALETTE[0], DASHES),
              ("none", True): ("no norm, with residuals", PALETTE[1], "-"), ("none", False): ("no norm, without", PALETTE[1], DASHES)}
    depths = sorted({layers for *_, layers in found["gradient"]})
    figure, (axes,) = figure_of(1, "Gradient at initialisation, with and without residual connections",
                                "mean (lines) and range (bands) of the seeds", styles.values())
    say(axes, "before block 1, over after block L")
    drawn = []
    for key, (label, color, style) in styles.items():
        drawn.append(np.array([found["gradient"][*key, layers][0] for layers in depths]).T)
        draw(axes, depths, drawn[-1], Line(label, color, style), "o")
    scale_y(axes, drawn, log=True)
    depth_ticks(axes, depths)
    return figure


def seeds_of(rows):
    seeds = len({row.get("seed") for row in rows.rows})
    return f"mean (lines) and range (bands) of {seeds} seeds" if seeds > 1 else "one seed"


def by_rate(title, panels, lines):
    """A drawing of final validation losses against the rate: a panel and a line each of what runs have, {name: values}."""
    styles = {name: (COLORS.get(name, color), marker) for name, color, marker in zip(lines, PALETTE, "os^D" + "o" * len(lines))}

    @drawing
    def plot(rows):
        figure, axes = figure_of(len(panels), title, seeds_of(rows) + "; dotted: the unigram level, 3.08",
                                 [(name, color, "-") for name, (color, _) in styles.items()])
        shown = sorted({row["lr"] for row in rows.rows}, key=float)
        lowest = min(rows.losses())
        for panel, (name, shared) in zip(axes, panels.items()):
            panel.set_title(name)
            for label, own in lines.items():
                losses = np.array([rows.losses(**shared, **own, lr=rate) for rate in shown]).T
                draw(panel, np.array(shown, float), losses, Line(label, styles[label][0]), styles[label][1])
            panel.axhline(3.08, color=MUTED, linewidth=1, linestyle=DOTS)
            panel.set_xscale("log")
            panel.set_xticks(list(map(float, shown)), shown)
            panel.minorticks_off()
            panel.set_xlabel("learning rate")
            panel.set_ylim(lowest - 0.1, 3.2)
            say(panel, "final validation loss (nats)")
        return figure

    return plot


@drawing
def outgrow(found):
    shown = sorted({row["lr"] for row in found.rows}, key=float)
    names = dict.fromkeys(row["norm_placement"] for row in found.rows)
    lines = {name: Line(name, COLORS[name], dash) for name, dash in zip(names, LINES)}  # two of them lie on one another
    figure, axes = figure_of(len(shown), "The stream in training", seeds_of(found), lines.values())
    for panel, rate in zip(axes, shown):
        panel.set_title(f"lr {rate}")
        for name in names:
            steps, curves = found.measured("stream", norm_placement=name, lr=rate).transpose(1, 0, 2)
            draw(panel, steps[0], curves, lines[name])
        whole_x(panel, steps[0, -1])
        panel.set_xlabel("step")
        say(panel, "rms of the stream after the last block")
        scale_y(panel, [found.measured("stream")[:, 1]], log=True)
    return figure


@drawing
def trainability(found):
    depths, scales, cosines = [4, 6, 12, 24, 48, 64], (0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.2), (0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 1)
    blues = matplotlib.colormaps["Blues"](np.linspace(0, 0.7, len(cosines) - 1))
    tokens, amplification = by_theory(found.rows[0]["folder"] / "config.json", depths, scales)
    shown = sorted({row["lr"] for row in found.rows}, key=float)
    figure, panels = figure_of(len(shown), "Post-norm without warm-up: what learns",
                               "one seed; theory (scripts/predict.py): colour, cosine of two tokens after the last block; lines, amplification A",
                               [("learns", PALETTE[1], "o"), ("stays at the unigram level", MUTED, "s")])
    for axes, rate in zip(panels, shown):
        axes.set_title(f"lr {rate}")
        filled = axes.contourf(depths, scales, tokens, cosines, colors=blues)
        axes.clabel(axes.contour(depths, scales, amplification, (1, 2, 5, 10, 20, 50), colors=INK, linewidths=0.8), fmt="A %g", fontsize=8)
        for _, layers, scale in by_amplification(found, lr=rate):
            good = has_learnt(found, n_layer=layers, branch_scale=scale, lr=rate)
            color, marker = (PALETTE[1], "o") if good else (MUTED, "s")
            axes.plot(int(layers), float(scale), marker, color=color, markersize=10, markeredgecolor="white")
        axes.set_yscale("log")
        axes.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
        axes.minorticks_off()
        depth_ticks(axes, depths)
        say(axes, "weight of a branch")
    figure.colorbar(filled, ax=panels, label="cosine of two tokens", pad=0.02)
    return figure
