"""Wang et al. 2025: the kinds of parameters by sharpness. The mean square of the gradient stands for it."""

import itertools
import re

from papers.lib.experiment import Claim, markdown, np

KINDS = {"embeddings": r"embed\.", "q, k": r"attn\.[qk]\.", "FFN": r"ffn\.", "v, o": r"attn\.(v|out)\.",
         "norms": r"_norm\."}
TIMES = ("step 1", "after warm-up")


def measure(run):
    """The mean square of the gradient by kind of parameter at each of TIMES; the last half of the steps is after
    warm-up."""
    rows = list(run.records("params.csv"))
    half = rows[-1]["step"] / 2

    def mean_square(pattern, is_chosen):
        chosen = [row for row in rows if is_chosen(row["step"]) and re.search(pattern, row["param"])]
        return sum(row["grad_norm"]**2 for row in chosen) / sum(row["numel"] for row in chosen)

    return {time: [mean_square(pattern, is_chosen) for pattern in KINDS.values()]
            for time, is_chosen in zip(TIMES, (lambda step: step == 1, lambda step: step > half))}


def squares_of(runs, placement, time):
    """By kind, mean over seeds."""
    return runs.measured(time, norm_placement=placement).mean(axis=0)


def claims(runs):
    for placement, time, low, high, must_hold in (("pre", "after warm-up", 0, 0, True), ("pre", "step 1", 1, 4, True),
                                                  ("post", "after warm-up", 1, 4, False)):
        out_of_order = (np.diff(squares_of(runs, placement, time)) <= 0).sum()
        yield Claim(f"{placement}, {time}: neighbours out of order", out_of_order, low, high, must_hold)
    embeddings, queries_and_keys, _, values_and_outputs, norms = squares_of(runs, "pre", "after warm-up")
    yield Claim("pre, after warm-up: embeddings over q, k", embeddings / queries_and_keys, 0, 0.5, must_hold=False)
    yield Claim("pre, after warm-up: norms over v, o", norms / values_and_outputs, 2, 1e4)


def table(runs):
    lines = []
    for placement, time in itertools.product(("pre", "post"), TIMES):
        squares = squares_of(runs, placement, time)
        of_ffn = squares[list(KINDS).index("FFN")]
        lines.append([f"{placement}, {time}", *(f"{square / of_ffn:.2g}" for square in squares)])
    return markdown(["mean square of the gradient, over the FFN's", *KINDS], *lines)
