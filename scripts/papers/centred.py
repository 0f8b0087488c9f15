"""Gupta et al. 2024: how large the mean over features of a token's vector is, before and after training, by norm."""

from papers.lib.experiment import (Claim, Model, Panel, Probed, config_of, fresh, markdown, picture_of, probe, spread,
                                   sweep)

NORMS, PLACEMENTS = ("layernorm", "rmsnorm"), ("pre", "sandwich", "post", "deepnorm")
VARIANTS = {(norm, placement): {"norm": norm, "norm_placement": placement}
            for norm in NORMS for placement in PLACEMENTS}
SEEDS = 8  # before training: the directions of a few frequent characters decide


def mean_over_law(model):
    """C mean^2 / mean square of a token's vector, mean over tokens, layers 0..L; 1 for a random direction."""
    return [x.shape[-1] * (x.mean(-1) ** 2 / (x * x).mean(-1)).mean() for x in model.streams]


def run(config, out, quick):
    """{time: {(norm, placement): values (seeds, layers)}}."""
    probes = probe(config, out, quick, VARIANTS, lambda run: mean_over_law(fresh(run)), seeds=SEEDS)
    runs = sweep(config_of("frozen"), out.parent / "frozen", quick,
                 after=lambda run: mean_over_law(Model(run.folder)))
    return {"before training": {variant: values for variant, (values, _) in probes.items()},
            "after": {variant: runs.measured("after", **values) for variant, values in VARIANTS.items()}}


def mean_over_blocks(values):
    """The mean over the blocks' outputs, for each seed."""
    return values[:, 1:].mean(axis=1)


def claims(means):
    for placement, norm, low, high in (("pre", "layernorm", 0.75, 1.25), ("pre", "rmsnorm", 0.75, 1.25),
                                       ("sandwich", "rmsnorm", 0.75, 1.25), ("sandwich", "layernorm", 0.2, 0.33)):
        law = " (law 0.27)" if placement == "sandwich" and norm == "layernorm" else ""
        yield Claim(f"{placement}, {norm}, before training: C mean²/mean square{law}",
                    mean_over_blocks(means["before training"][norm, placement]).mean(), low, high)
    for placement, norm, low in (*((placement, "rmsnorm", 0.33) for placement in PLACEMENTS),
                                 ("pre", "layernorm", 0.33), ("sandwich", "layernorm", 0)):
        yield Claim(f"{placement}, {norm}, after: C mean²/mean square",
                    mean_over_blocks(means["after"][norm, placement]).mean(), low, 3)


def table(means):
    lines = []
    for norm in NORMS:
        for time, values in means.items():
            cells = [spread(mean_over_blocks(values[norm, placement]), "{:.2f}") for placement in PLACEMENTS]
            lines.append([f"{norm}, {time}", *cells])
    return markdown(["C mean²/mean square", *PLACEMENTS], *lines)


def picture(means):
    panels = [Panel(placement, "C mean² / mean square",
                    {f"{norm}, {time}": Probed(values[norm, placement]) for norm in NORMS
                     for time, values in means.items()}) for placement in PLACEMENTS]
    return picture_of("The mean of a token's vector, over that of a random direction", panels,
                      second=[f"{norm}, before training" for norm in NORMS])
