"""Xiong et al. 2020, theorem 1: the gradient of the last block's second FFN matrix, by depth."""

from papers.lib.experiment import (COLORS, Claim, Line, depth_ticks, draw, drawing, figure_of, log_slope, matplotlib,
                                   name_ends, np, probe, read_csv, whole_x, write_unit)

PLACEMENTS = ("pre", "post")
DEPTHS = (6, 8, 10, 12, 14, 24, 48)
SHOWN = (6, 8, 10, 12, 14)  # depths whose blocks are drawn one by one
VARIANTS = {(placement, depth): {"norm_placement": placement, "n_layer": depth}
            for placement in PLACEMENTS for depth in DEPTHS}


def gradient_of_w2(folder):
    """|dW2| of each block, W2 being the FFN's second matrix."""
    rows = [row for row in read_csv(folder / "params.csv") if row["param"].endswith(".ffn.out.weight")]
    return [float(row["grad_norm_batch"]) for row in rows]


def run(config, out, quick):
    probes = probe(config, out, quick, VARIANTS, gradient_of_w2, seeds=16)
    return {variant: norms for variant, (norms, _) in probes.items()}


def claims(gradients):
    def slope(placement):
        return log_slope(DEPTHS, [gradients[placement, depth][:, -1].mean() for depth in DEPTHS])

    yield Claim("pre: slope of log |dW2| of block L against log L", slope("pre"), -0.55, -0.35)
    yield Claim("post: slope of log |dW2| of block L against log L", slope("post"), 0.0, 0.2)
    by_block = gradients["pre", 14].mean(axis=0)
    yield Claim("pre, L 14: |dW2| of block 1 over block L, law's √((1 + 1.5 L)/2.5) = 3.0",
                by_block[0] / by_block[-1], 2.2, 3.8)


@drawing
def picture(gradients):
    colors = dict(zip(SHOWN, matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(SHOWN)))))
    seeds = len(gradients["pre", DEPTHS[0]])
    figure, axes = figure_of(3, "Gradient of the FFN's second matrix at initialisation",
                             f"{seeds} seeds: mean (lines) and range (bands). Xiong et al. 2020, theorem 1.",
                             [(f"L = {depth}", color, "-") for depth, color in colors.items()], PLACEMENTS)
    for panel, placement in zip(axes, PLACEMENTS):
        panel.set_title(f"{placement}, by block")
        for depth, color in colors.items():
            draw(panel, np.arange(1, depth + 1), gradients[placement, depth], Line(f"L = {depth}", color))
        whole_x(panel, SHOWN[-1])
        panel.set_xlabel("block")
    axes[2].set_title("Last block, by depth")
    for placement in PLACEMENTS:
        last = np.array([gradients[placement, depth][:, -1] for depth in DEPTHS]).T
        draw(axes[2], DEPTHS, last, Line(placement, COLORS[placement]), "o")
    depth_ticks(axes[2], list(DEPTHS))
    top = max(norms.max() for norms in gradients.values())
    for panel in axes:
        write_unit(panel, "|dW2| (nats per unit)")
        panel.set_ylim(0, 1.08 * top)
    name_ends(axes[2], PLACEMENTS)
    return figure
