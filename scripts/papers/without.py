"""Does a transformer need norms at all, and their gain and bias?"""

from papers.lib.experiment import Claim, loss_table, rates

RATES = ("0.0003", "0.001", "0.003")
LINES = {"L 2, with norms": {"norm": "layernorm", "n_layer": 2, "norm_affine": "true"},
         "L 12, with norms": {"norm": "layernorm", "n_layer": 12, "norm_affine": "true"},
         "L 2, without": {"norm": "none", "n_layer": 2}, "L 12, without": {"norm": "none", "n_layer": 12},
         "L 12, norms without gain and bias": {"norm_affine": "false"}}


def claims(runs):
    for depth, low, high in (("L 2", -0.1, 0.25), ("L 12", 0.4, 1e4)):
        for rate in RATES:
            lost = runs.difference(LINES[f"{depth}, without"], LINES[f"{depth}, with norms"], lr=rate)
            yield Claim(f"{depth}, lr {rate}: what is lost without norms", lost, low, high)
    lost = runs.difference(LINES["L 12, norms without gain and bias"], {**LINES["L 12, with norms"], "lr": "0.001"})
    yield Claim("L 12: what norms lose without gain and bias", lost, -0.1, 0.1)


table = loss_table(LINES, rates(*RATES))
