"""Gupta et al. 2024: how large the mean over features of a token's vector is, before and after training, by norm."""

from papers.lib.experiment import (Claim, Model, Panel, choices, config_of, fresh, markdown, picture_of, placements,
                                   probe, spread, sweep)

NORMS, PLACEMENTS = choices("norm", "layernorm", "rmsnorm"), placements("pre", "sandwich", "post", "deepnorm")
SEEDS = 8  # before training: the directions of a few frequent characters decide


def mean_over_law(model):
    """C mean^2 / mean square of a token's vector, mean over tokens, layers 0..L; 1 for a random direction."""
    return [x.shape[-1] * (x.mean(-1) ** 2 / (x * x).mean(-1)).mean() for x in model.streams]


def measure(run):
    return {"mean": mean_over_law(Model(run.folder))}


def run(config, out, quick):
    """{placement: {"NORM, before training" and "NORM, after": Probed (seeds, layers)}}."""
    runs, means = sweep(config_of("frozen"), out.parent / "frozen", quick, measure), {}
    for placement, place in PLACEMENTS.items():
        means[placement] = {}
        for norm, values in NORMS.items():
            means[placement] |= probe(config, out / placement, quick, {f"{norm}, before training": {**values, **place}},
                                      lambda run: mean_over_law(fresh(run)), seeds=SEEDS)
            means[placement] |= runs.lines("mean", {f"{norm}, after": values}, **place)
    return means


def mean_over_blocks(probed):
    """The mean over the blocks' outputs, for each seed."""
    return probed.measured[:, 1:].mean(axis=1)


def claims(means):
    for placement, norm, low, high in (("pre", "layernorm", 0.75, 1.25), ("pre", "rmsnorm", 0.75, 1.25),
                                       ("sandwich", "rmsnorm", 0.75, 1.25), ("sandwich", "layernorm", 0.2, 0.33)):
        law = " (law 0.27)" if placement == "sandwich" and norm == "layernorm" else ""
        yield Claim(f"{placement}, {norm}, before training: C mean²/mean square{law}",
                    mean_over_blocks(means[placement][f"{norm}, before training"]).mean(), low, high)
    for placement, norm, low in (*((placement, "rmsnorm", 0.33) for placement in PLACEMENTS),
                                 ("pre", "layernorm", 0.33), ("sandwich", "layernorm", 0)):
        yield Claim(f"{placement}, {norm}, after: C mean²/mean square",
                    mean_over_blocks(means[placement][f"{norm}, after"]).mean(), low, 3)


def table(means):
    lines = [[line, *(spread(mean_over_blocks(means[placement][line]), "{:.2f}") for placement in PLACEMENTS)]
             for line in means["pre"]]
    return markdown(["C mean²/mean square", *PLACEMENTS], *lines)


def picture(means):
    panels = [Panel(placement, "C mean² / mean square", lines) for placement, lines in means.items()]
    return picture_of("The mean of a token's vector, over that of a random direction", panels,
                      second=[f"{norm}, before training" for norm in NORMS])
