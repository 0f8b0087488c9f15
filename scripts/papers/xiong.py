"""Xiong et al. 2020, theorem 1: the gradient of the last block's second FFN matrix, by depth."""

from papers.lib.experiment import Claim, Panel, Probed, crossed, depths, log_slope, np, picture_of, placements, probe

PLACEMENTS = placements("pre", "post")
DEPTHS = (6, 8, 10, 12, 14, 24, 48)
VARIANTS = crossed(PLACEMENTS, depths(*DEPTHS))


def gradient_of_w2(run):
    """|dW2| of each block, W2 being the FFN's second matrix."""
    return [row["grad_norm_batch"] for row in run.records("params.csv") if row["param"].endswith(".ffn.out.weight")]


def run(config, out, quick):
    return probe(config, out, quick, VARIANTS, gradient_of_w2, seeds=16)


def claims(probes):
    for placement, low, high in (("pre", -0.55, -0.35), ("post", 0.0, 0.2)):
        last = [probes[f"{placement}, L {depth}"].mean[-1] for depth in DEPTHS]
        yield Claim(f"{placement}: slope of log |dW2| of block L against log L", log_slope(DEPTHS, last), low, high)
    by_block = probes["pre, L 14"].mean
    yield Claim("pre, L 14: |dW2| of block 1 over block L, law's √((1 + 1.5 L)/2.5) = 3.0",
                by_block[0] / by_block[-1], 2.2, 3.8)


def picture(probes):
    unit = "|dW2| (nats per unit)"
    panels = [Panel(f"L {depth}, by block", unit, {name: probes[f"{name}, L {depth}"] for name in PLACEMENTS}, first=1)
              for depth in (6, 14)]
    last = {name: Probed(np.array([probes[f"{name}, L {depth}"].measured[:, -1] for depth in DEPTHS]).T)
            for name in PLACEMENTS}
    return picture_of("Gradient of the FFN's second matrix at initialisation",
                      [*panels, Panel("Last block, by depth", unit, last, x=("blocks (L)", DEPTHS))])
