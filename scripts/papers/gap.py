"""Derf, Chen et al. 2025: do bounded functions in the place of norms generalise better at an equal training loss?"""

from papers.lib.experiment import (DASHES, PALETTE, Claim, Line, choices, draw, drawing, figure_of, markdown, np,
                                   read_csv, seeds_of, spread, write_unit)

NORMS = choices("norm", "layernorm", "rmsnorm", "dyt", "derf")
LEVELS = (2.5, 2.2, 2.0, 1.8, 1.5)  # training losses, falling
LEVEL = 1.5


def gaps(run):
    """[validation minus training loss at each of LEVELS, by lines between evaluations; ...; lowest training loss]."""
    rows = [row for row in read_csv(run.folder / "metrics.csv") if row["val_loss"]]
    train, validation = (np.array([float(row[column]) for row in rows]) for column in ("train_loss", "val_loss"))
    lowest = np.minimum.accumulate(train)
    return [*(np.interp(level, lowest[::-1], validation[::-1]) - level for level in LEVELS), lowest[-1]]


MEASURES = {"gaps": gaps}


def at(runs, level, norm):
    """The gap at this training loss, for each seed."""
    return runs.measured("gaps", norm=norm)[:, LEVELS.index(level)]


def claims(runs):
    yield Claim("lowest training loss of the model that fits worst", runs.measured("gaps")[:, -1].max(), 0, LEVEL)
    for norm, low, high in (("rmsnorm", -0.03, 0.03), ("dyt", -1, -0.01), ("derf", -1, -0.01)):
        yield Claim(f"{norm}: gap at a training loss of {LEVEL}, less layernorm's, by seed",
                    (at(runs, LEVEL, norm) - at(runs, LEVEL, "layernorm")).mean(), low, high)
    fit = {norm: runs.measured("gaps", norm=norm)[:, -1] for norm in NORMS}
    yield Claim("derf: lowest training loss, less layernorm's", (fit["derf"] - fit["layernorm"]).mean(), 0.005, 2)


def table(runs, chosen=NORMS):
    lines = [[name, *map(spread, runs.measured("gaps", **values).T)] for name, values in chosen.items()]
    titles = ["validation − training loss", *(f"at {level}" for level in LEVELS), "lowest training loss"]
    return markdown(titles, *lines)


@drawing
def picture(runs):
    dashes = ("-", DASHES, "-", "-")  # layernorm and rmsnorm coincide
    lines = {name: Line(name, color, dash) for name, color, dash in zip(NORMS, PALETTE, dashes)}
    figure, (axes,) = figure_of(1, "Over-fitting 2048 characters", seeds_of(runs), lines.values())
    for name, line in lines.items():
        draw(axes, np.array(LEVELS), np.array([at(runs, level, name) for level in LEVELS]).T, line, "o")
    axes.invert_xaxis()
    axes.set_xlabel("training loss (nats)")
    write_unit(axes, "validation − training loss (nats)")
    return figure
