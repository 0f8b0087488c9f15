"""Which cures for post-norm's depth train without warm-up, at L 24 and L 48?"""

from papers.lib.experiment import depths, learns, loss_table, placements, stays_at_unigram


def claims(runs):
    for depth in (24, 48):
        yield stays_at_unigram(f"post at L {depth}", runs.loss(norm_placement="post", n_layer=depth))
    for placement in ("pre", "deepnorm", "rezero", "res_post"):
        yield learns(f"{placement} at L 24", runs.loss(norm_placement=placement, n_layer=24))
    for placement in ("pre", "deepnorm"):
        yield learns(f"{placement} at L 48", runs.loss(norm_placement=placement, n_layer=48))


table = loss_table(depths(24, 48), placements("post", "pre", "deepnorm", "rezero", "res_post", "mix"))
