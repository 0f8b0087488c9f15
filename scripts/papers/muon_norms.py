"""Abouzeid 2026: does a bounded function of each feature stand in for a norm under Muon as well as under AdamW?"""

from papers.lib.experiment import Claim, loss_table, rates

RATES = ("0.001", "0.004")
LINES = {f"{optimizer}, {norm}": {"optimizer": optimizer, "norm": norm, "norm_alpha": alpha}
         for optimizer in ("adamw", "muon") for norm, alpha in (("rmsnorm", ""), ("dyt", "0.5"), ("derf", "0.5"))}
LINES["muon, derf, α 0.3"] = {"optimizer": "muon", "norm": "derf", "norm_alpha": "0.3"}


def claims(runs):
    best = {line: min(runs.loss(**values, lr=rate) for rate in RATES) for line, values in LINES.items()}
    behind = {line: loss - best[f"{LINES[line]['optimizer']}, rmsnorm"] for line, loss in best.items()}
    yield Claim("derf's gap to rmsnorm under AdamW: difference of the losses", behind["adamw, derf"], 0.02, 1)
    further = {norm: behind[f"muon, {norm}"] - behind[f"adamw, {norm}"] for norm in ("derf", "dyt")}
    yield Claim("derf's gap to rmsnorm under Muon, minus its gap under AdamW", further["derf"], 0.02, 2,
                must_hold=False)
    yield Claim("dyt's gap to rmsnorm under Muon, minus its gap under AdamW", further["dyt"], -1, 0.02)
    ratio = behind["muon, derf, α 0.3"] / behind["muon, derf"]
    yield Claim("derf's gap to rmsnorm under Muon: with α 0.3, divided by that with α 0.5", ratio, -1, 0.7,
                must_hold=False)


table = loss_table(LINES, rates(*RATES))
