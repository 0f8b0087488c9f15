"""arXiv 2603.27432: what becomes of the direction that a norm's centring takes from the next matrix?"""

from lib.experiment import PALETTE, Claim, Line, Model, Panel, by_layer, fresh, markdown, np, seeds_of

READERS = ("attn.qkv", "ffn.in")  # the matrices that read a norm, in each block
LINES = {f"{norm}, {optimizer}": {"norm": norm, "optimizer": optimizer}
         for optimizer in ("adamw", "sgd") for norm in ("layernorm", "rmsnorm")}


def along_ones(matrix):
    """The length of W u over that of a random direction in the mean, u = (1, ..., 1)/√C: √C |W u| / |W|."""
    return np.linalg.norm(matrix.sum(axis=1)) / np.linalg.norm(matrix)


def direction(run):
    """By matrix and block: [|W u| over that before training, its law by decay alone, the squares of along_ones(W) and
    of along_ones(dW)]."""
    trained, first = Model(run.folder), fresh(run.folder).weights
    law = (1 - run.value("train.lr") * run.value("train.weight_decay")) ** run.value("train.steps")

    def values(name):
        matrix, gradient = trained.weights[name], trained.tensors[f"grad.{name}"]
        left = np.linalg.norm(matrix.sum(axis=1)) / np.linalg.norm(first[name].sum(axis=1))
        return [left, law, along_ones(matrix) ** 2, along_ones(gradient.astype(float)) ** 2]

    return [[values(f"blocks.{block}.{reader}.weight") for block in range(run.value("model.n_layer"))]
            for reader in READERS]


MEASURES = {"direction": direction}


def measured(runs, line):
    """(left, law, share of W, share of dW), each an array (seeds, matrices, blocks)."""
    return np.moveaxis(runs.measured("direction", **LINES[line]), -1, 0)


def claims(runs):
    left, law, _, gradient = measured(runs, "layernorm, sgd")
    yield Claim("layernorm, sgd: share of dW along (1, ..., 1), the largest", gradient.max(), 0, 1e-8)
    yield Claim("layernorm, sgd: |W (1, ..., 1)| over its law, the farthest from 1, less 1",
                np.abs(left / law - 1).max(), 0, 0.01)
    left, law, _, gradient = measured(runs, "rmsnorm, sgd")
    yield Claim("rmsnorm, sgd: share of dW along (1, ..., 1), mean", gradient.mean(), 0.1, 10)
    yield Claim("rmsnorm, sgd: |W (1, ..., 1)| over that law, mean", (left / law).mean(), 1.5, 1000)
    for norm, low, high in (("layernorm", 0.01, 0.3), ("rmsnorm", 0.5, 2)):
        share = measured(runs, f"{norm}, adamw")[2].mean()
        yield Claim(f"{norm}, adamw: share of W along (1, ..., 1), mean", share, low, high)


def table(runs):
    lines = []
    for line in LINES:
        left, law, *shares = (values.mean(axis=(0, 2)) for values in measured(runs, line))
        lines += [[f"{line}: {reader}", f"{left[row]:.3g} / {law[row]:.3g}", *(f"{share[row]:.2g}" for share in shares)]
                  for row, reader in enumerate(READERS)]
    return markdown(["direction (1, ..., 1)", "left of W / law", "share of W", "share of dW"], *lines)


def picture(runs):
    lines = {line: Line(line, color) for line, color in zip(LINES, PALETTE)}
    probes = {line: measured(runs, line) for line in LINES}
    panels = [Panel(reader, "left of W's part along (1, ..., 1)",
                    {line: (left[:, row], law[0, row]) for line, (left, law, _, _) in probes.items()}, 1, True)
              for row, reader in enumerate(READERS)]
    return by_layer("What training leaves of the direction that centring takes", panels, lines,
                    f"{seeds_of(runs)}; dashed in black: decay alone")
