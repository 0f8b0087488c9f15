"""Kosson et al. 2023: the size that weights reach whose size does not matter, by AdamW's steps and its decay."""

import math

from papers.lib.experiment import Claim, markdown, np

MATRICES = ("ffn.in", "ffn.out", "attn.out", "head")  # the size of the last one matters to the loss


def measure(run):
    """The rms of the MATRICES at the last step, mean over the blocks, over √(lr / 2 wd)."""
    rows = list(run.records("params.csv"))
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    law = math.sqrt(run.value("train.lr") / 2 / run.value("train.weight_decay"))

    def rms(matrix):
        return np.mean([row["rms"] for row in last if row["param"].endswith(f"{matrix}.weight")])

    return {"size": [rms(matrix) / law for matrix in MATRICES]}


def claims(runs):
    for scheme in ("xavier_normal", "gpt2"):
        sizes = dict(zip(MATRICES, runs.measured("size", lr="0.001", scheme=scheme).mean(axis=0)))
        for matrix, low, high in (("ffn.in", 0.85, 1.15), ("ffn.out", 0.85, 1.15), ("head", 2, 20)):
            yield Claim(f"lr 0.001, {scheme}: {matrix} over √(lr / 2 wd)", sizes[matrix], low, high)


def table(runs):
    lines = [[f"lr {row['lr']}, {row['scheme']}", *(f"{size:.2f}" for size in row["size"])] for row in runs.rows]
    return markdown(["rms at the last step / √(lr / 2 wd)", *MATRICES], *lines)
