"""arXiv 2512.08217: a weight decay in proportion to the rate keeps the sizes of weights over rates."""

from papers.equilibrium import MATRICES, measure  # which is how this module measures its runs too
from papers.lib.experiment import Claim, Panel, Probed, choices, np, picture_of, rates, table_of

RATES, DECAYS = ("0.001", "0.002", "0.004"), ("0.5", "1", "2")
RULES = {"wd fixed": ("1", "1", "1"), "wd in proportion to lr": DECAYS}


def law(decays):
    """The sizes at RATES with these decays."""
    return np.sqrt(np.array(RATES, float) / 2 / np.array(decays, float))


def sizes(runs, decays):
    """The rms of each of MATRICES at the last step, an array (matrices, rates), for a decay of each rate."""
    over_law = [runs.measured("size", lr=rate, weight_decay=decay)[0] for rate, decay in zip(RATES, decays)]
    return np.transpose(over_law) * law(decays)


def claims(runs):
    for (rule, decays), low, high in zip(RULES.items(), (1.6, 0.8), (2.4, 1.25)):
        for matrix, rms in zip(MATRICES, sizes(runs, decays)):
            yield Claim(f"{rule}: {matrix}, size at lr 0.004 over that at 0.001", rms[-1] / rms[0], low, high,
                        must_hold=matrix != "head")


def table(runs):
    return table_of(runs, "rms at the last step over √(lr / 2 wd), mean of the blocks' matrices",
                    lambda **values: f"{runs.measured('size', **values)[0, :-1].mean():.2f}",
                    rates(*RATES), choices("weight_decay", *DECAYS, name="wd {}"))


def picture(runs):
    panels = [Panel(rule, "rms at the last step", {matrix: Probed(rms[None], law(decays))
                                                   for matrix, rms in zip(MATRICES, sizes(runs, decays))}, True,
                    x=("learning rate", [*map(float, RATES)])) for rule, decays in RULES.items()]
    return picture_of("Sizes of weights over rates", panels, "dashed: √(lr / 2 wd)")
