"""Is the place of the norm the cause, or the size of the branches, compared with the stream?"""

from papers.lib.experiment import Claim, learns, loss_table, placements, stays_at_unigram

INITS = {
    "Xavier, unit embeddings": {"scheme": "xavier_normal"},
    "GPT-2's (0.02, projections by 1/√(2L))": {"scheme": "gpt2"}}


def claims(runs):
    yield learns("Xavier, pre", runs.loss(scheme="xavier_normal", norm_placement="pre"))
    yield stays_at_unigram("Xavier, post", runs.loss(scheme="xavier_normal", norm_placement="post"))
    difference = runs.difference({"norm_placement": "post"}, {"norm_placement": "pre"}, scheme="gpt2")
    yield Claim("GPT-2's: post minus pre, by seed", difference, -0.2, 0.2)


table = loss_table(placements("pre", "post"), INITS, against="pre")
