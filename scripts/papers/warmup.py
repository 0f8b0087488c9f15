"""Xiong et al. 2020, figure 2: post-norm needs its warm-up, pre-norm does not."""

from papers.lib.experiment import Claim, learns, loss_table, losses_by_rate, placements, rates, stays_at_unigram

RATES = ("0.0005", "0.001", "0.003")
LINES = {f"{placement}{name}": {"norm_placement": placement, "warmup_steps": steps}
         for placement in ("pre", "post") for name, steps in (("", 0), (", warm-up 200", 200))}


def claims(runs):
    for warmup in (0, 200):
        for rate in RATES:
            loss = runs.loss(norm_placement="pre", warmup_steps=warmup, lr=rate)
            yield learns(f"pre, warm-up {warmup}, lr {rate}", loss)
    for rate in RATES[1:]:
        yield stays_at_unigram(f"post, no warm-up, lr {rate}", runs.loss(**LINES["post"], lr=rate))
    for rate in RATES[:2]:
        gain = runs.difference(LINES["post"], LINES["post, warm-up 200"], lr=rate)
        yield Claim(f"post, lr {rate}: what a warm-up of 200 gains", gain, 0.05, 1)


table = loss_table(LINES, rates(*RATES))


picture = losses_by_rate("Warm-up, learning rate and the norm's place", placements("pre", "post"),
                         {"no warm-up": {"warmup_steps": 0}, "warm-up 200": {"warmup_steps": 200}})
