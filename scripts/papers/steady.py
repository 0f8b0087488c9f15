"""arXiv 2512.08217: a weight decay in proportion to the rate keeps the sizes of weights over rates."""

from papers.equilibrium import MATRICES, measure
from papers.lib.experiment import Claim, Panel, Probed, choices, np, picture_of, rates, table_of

RATES, DECAYS = ("0.001", "0.002", "0.004"), ("0.5", "1", "2")
RULES = {"wd fixed": ("1", "1", "1"), "wd in proportion to lr": DECAYS}


def law(rate, decay):
    return np.sqrt(float(rate) / 2 / float(decay))


def sizes(runs, decays):
    """The rms of each of MATRICES at the last step, an array (rates, matrices), for a decay of each rate."""
    return np.array([runs.measured("size", lr=rate, weight_decay=decay)[0] * law(rate, decay)
                     for rate, decay in zip(RATES, decays)])


def claims(runs):
    for (rule, decays), low, high in zip(RULES.items(), (1.6, 0.8), (2.4, 1.25)):
        for matrix, grown in zip(MATRICES, sizes(runs, decays)[-1] / sizes(runs, decays)[0]):
            yield Claim(f"{rule}: {matrix}, size at lr 0.004 over that at 0.001", grown, low, high,
                        must_hold=matrix != "head")


def table(runs):
    return table_of(runs, "rms at the last step over √(lr / 2 wd), mean of the blocks' matrices",
                    lambda **values: f"{runs.measured('size', **values)[0, :-1].mean():.2f}",
                    rates(*RATES), choices("weight_decay", *DECAYS, name="wd {}"))


def picture(runs):
    panels = [Panel(rule, "rms at the last step",
                    {matrix: Probed(rms[None], np.array([law(*pair) for pair in zip(RATES, decays)]))
                     for matrix, rms in zip(MATRICES, sizes(runs, decays).T)}, True,
                    x=("learning rate", [*map(float, RATES)]))
              for rule, decays in RULES.items()]
    return picture_of("Sizes of weights over rates", panels, "dashed: √(lr / 2 wd)")
