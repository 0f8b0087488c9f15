"""arXiv 2511.10566: what do a norm's gain and bias do for memorising, under pre-norm and under post-norm?"""

from lib.model import measures
from papers import gap
from papers.lib.experiment import Claim, crossed, placements

LEVEL = 2.0  # a training loss
AFFINE = {"with gain and bias": {"norm_affine": "true"}, "without": {"norm_affine": "false"}}


def rises(run):
    """The rise of the loss on the memorised batch with gain 1 and bias 0 in the norms of each block."""
    model = measures.Model(run.folder)

    def loss(block):
        decoder = measures.decoder_of(model, measures.Decoder)
        for name, array in decoder.weights.items():
            if name.startswith(f"blocks.{block}.") and "_norm." in name:
                array[:] = name.endswith("weight")
        return measures.cross_entropy(decoder.logits(model.tensors["tokens"]), model.tensors["targets"])

    return [loss(block) - loss(None) for block in range(run.value("model.n_layer"))]


def measure(run):
    return {**gap.measure(run), "rises": rises(run)}


def claims(runs):
    yield Claim("lowest training loss of the model that fits worst", runs.measured("lowest").max(), 0, LEVEL)
    for placement, low, high in (("pre", 0.01, 1), ("post", -1, -0.01)):
        own, plain = crossed(placements(placement), AFFINE).values()
        change = (runs.measured("gaps", **plain) - runs.measured("gaps", **own)).mean(axis=0)
        yield Claim(f"{placement}: gap at a training loss of {LEVEL}, without gain and bias less with them",
                    change[gap.LEVELS.index(LEVEL)], low, high, must_hold=False)
        if placement == "pre":
            change = (runs.measured("lowest", **plain) - runs.measured("lowest", **own)).mean()
            yield Claim("pre: lowest training loss, without less with", change, 0.005, 2, must_hold=False)
        rise = runs.measured("rises", **own).mean(axis=0)
        first, _, last = rise.reshape(3, -1).mean(axis=1)
        yield Claim(f"{placement}: rise without those of a block, first third over last", first / last, 1, 1000,
                    must_hold=placement == "pre")


def table(runs):
    return gap.table(runs, crossed(placements("pre", "post"), AFFINE))
