"""ProRes, Chen et al. 2026: does it help to let the branches of deeper blocks grow to their full weight later?"""

from papers.lib.experiment import Claim, choices, loss_table, placements

PLACEMENTS = placements("pre", "post", "sandwich", "deepnorm", "pre_scaled")


def claims(runs):
    for placement, values in PLACEMENTS.items():
        difference = runs.difference({"branch_warmup_steps": 3}, {"branch_warmup_steps": 0}, **values)
        yield Claim(f"{placement}: loss with branch warm-up of T 3 minus loss without, by seed", difference,
                    -1, 0, must_hold=False)


table = loss_table(PLACEMENTS, choices("branch_warmup_steps", 0, 3, 10, name="T {}"))
