"""Derf, Chen et al. 2025: do bounded functions in the place of norms generalise better at an equal training loss?"""

from papers.lib.experiment import Claim, Panel, choices, markdown, np, picture_of, spread

NORMS = choices("norm", "layernorm", "rmsnorm", "dyt", "derf")
LEVELS = (2.5, 2.2, 2.0, 1.8, 1.5)  # training losses, falling
LEVEL = 1.5


def measure(run):
    """`gaps`: validation minus training loss at each of LEVELS, by lines between evaluations; `lowest`: the lowest
    training loss."""
    rows = run.rows("metrics.csv", ("train_loss", "val_loss"))
    train, validation = rows[np.isfinite(rows[:, 1])].T
    lowest = np.minimum.accumulate(train)
    gaps = [np.interp(level, lowest[::-1], validation[::-1]) - level for level in LEVELS]
    return {"gaps": gaps, "lowest": lowest[-1]}


def claims(runs):
    yield Claim("lowest training loss of the model that fits worst", runs.measured("lowest").max(), 0, LEVEL)

    def beyond(name, norm):
        return runs.measured(name, norm=norm) - runs.measured(name, norm="layernorm")

    for norm, low, high in (("rmsnorm", -0.03, 0.03), ("dyt", -1, -0.01), ("derf", -1, -0.01)):
        yield Claim(f"{norm}: gap at a training loss of {LEVEL}, less layernorm's, by seed",
                    beyond("gaps", norm)[:, LEVELS.index(LEVEL)].mean(), low, high)
    yield Claim("derf: lowest training loss, less layernorm's", beyond("lowest", "derf").mean(), 0.005, 2)


def table(runs, chosen=NORMS):
    lines = [[name, *map(spread, runs.measured("gaps", **values).T), spread(runs.measured("lowest", **values))]
             for name, values in chosen.items()]
    titles = ["validation − training loss", *(f"at {level}" for level in LEVELS), "lowest training loss"]
    return markdown(titles, *lines)


def picture(runs):
    panel = Panel("", "validation − training loss (nats)", runs.lines("gaps", NORMS),
                  x=("training loss (nats)", LEVELS))
    figure = picture_of("Over-fitting 2048 characters", [panel], second=["rmsnorm"])  # it coincides with layernorm
    figure.axes[0].invert_xaxis()
    return figure
