"""arXiv 2603.27432: what becomes of the direction that a norm's centring takes from the next matrix?"""

from papers.lib.experiment import Claim, Model, fresh, markdown, np

READERS = ("attn.qkv", "ffn.in")  # the matrices that read a norm, in each block
NORMS = ("layernorm", "rmsnorm")
LINES = {f"{norm}, {name}": {"norm": norm, "optimizer": name} for name in ("adamw", "sgd") for norm in NORMS}


def along_ones(matrix):
    """The length of W u over that of a random direction in the mean, u = (1, ..., 1)/√C: √C |W u| / |W|."""
    return np.linalg.norm(matrix.sum(axis=1)) / np.linalg.norm(matrix)


def measure(run):
    """By matrix and block: [|W u| over that before training, its law by decay alone, the squares of along_ones(W) and
    of along_ones(dW)]."""
    trained, first = Model(run.folder), fresh(run).weights
    law = (1 - run.value("train.lr") * run.value("train.weight_decay")) ** run.value("train.steps")

    def values(name):
        matrix, gradient = trained.weights[name], trained.tensors[f"grad.{name}"].astype(float)
        left = np.linalg.norm(matrix.sum(axis=1)) / np.linalg.norm(first[name].sum(axis=1))
        return [left, law, along_ones(matrix) ** 2, along_ones(gradient) ** 2]

    blocks = range(run.value("model.n_layer"))
    return {"direction": [[values(f"blocks.{block}.{reader}.weight") for block in blocks] for reader in READERS]}


def measured(runs, line):
    """(left, law, share of W, share of dW), each an array (seeds, matrices, blocks)."""
    return np.moveaxis(runs.measured("direction", **LINES[line]), -1, 0)


def claims(runs):
    (left, law, _, gradient), (free, _, _, of_free) = (measured(runs, f"{norm}, sgd") for norm in NORMS)
    yield Claim("layernorm, sgd: share of dW along (1, ..., 1), the largest", gradient.max(), 0, 1e-8)
    yield Claim("layernorm, sgd: |W (1, ..., 1)| over its law, the farthest from 1, less 1",
                np.abs(left / law - 1).max(), 0, 0.01)
    yield Claim("rmsnorm, sgd: share of dW along (1, ..., 1), mean", of_free.mean(), 0.1, 10)
    yield Claim("rmsnorm, sgd: |W (1, ..., 1)| over that law, mean", (free / law).mean(), 1.5, 1000)
    for norm, low, high in zip(NORMS, (0.01, 0.5), (0.3, 2)):
        share = measured(runs, f"{norm}, adamw")[2].mean()
        yield Claim(f"{norm}, adamw: share of W along (1, ..., 1), mean", share, low, high)


def table(runs):
    lines = [[f"{line}: {reader}", *(f"{value:.3g}" for value in values)] for line in LINES
             for reader, values in zip(READERS, measured(runs, line).mean(axis=(1, 3)).T)]
    return markdown(["direction (1, ..., 1)", "left of W", "law", "share of W", "share of dW"], *lines)
