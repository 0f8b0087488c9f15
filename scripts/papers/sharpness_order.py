"""Wang et al. 2025: the kinds of parameters by sharpness. The mean square of the gradient stands for it."""

import re

from papers.lib.experiment import Claim, markdown, np

KINDS = {"embeddings": r"embed\.", "q, k": r"attn\.[qk]\.", "FFN": r"ffn\.", "v, o": r"attn\.(v|out)\.",
         "norms": r"_norm\."}
TIMES = ("step 1", "after warm-up")


def mean_squares(run):
    """The mean square of the gradient by kind of parameter: [at step 1, over the logged steps of the last half]."""
    rows = list(run.records("params.csv"))
    half = rows[-1]["step"] / 2

    def mean_square(pattern, is_chosen):
        chosen = [row for row in rows if is_chosen(row["step"]) and re.search(pattern, row["param"])]
        return sum(row["grad_norm"]**2 for row in chosen) / sum(row["numel"] for row in chosen)

    return [[mean_square(pattern, is_chosen) for pattern in KINDS.values()]
            for is_chosen in (lambda step: step == 1, lambda step: step > half)]


MEASURES = {"squares": mean_squares}


def squares_of(runs, placement, time):
    """By kind, mean over seeds."""
    return runs.measured("squares", norm_placement=placement)[:, TIMES.index(time)].mean(axis=0)


def out_of_order(squares):
    """How many neighbours of KINDS do not rise."""
    return (np.diff(squares) <= 0).sum()


def claims(runs):
    for placement, time, low, high, must_hold in (("pre", "after warm-up", 0, 0, True), ("pre", "step 1", 1, 4, True),
                                                  ("post", "after warm-up", 1, 4, False)):
        count = float(out_of_order(squares_of(runs, placement, time)))
        yield Claim(f"{placement}, {time}: neighbours out of order", count, low, high, must_hold)
    embeddings, queries_and_keys, _, values_and_outputs, norms = squares_of(runs, "pre", "after warm-up")
    yield Claim("pre, after warm-up: embeddings over q, k", embeddings / queries_and_keys, 0, 0.5, must_hold=False)
    yield Claim("pre, after warm-up: norms over v, o", norms / values_and_outputs, 2, 1e4)


def table(runs):
    lines = []
    for placement in ("pre", "post"):
        for time in TIMES:
            squares = squares_of(runs, placement, time)
            ffn_square = squares[list(KINDS).index("FFN")]
            lines.append([f"{placement}, {time}", *(f"{square / ffn_square:.2g}" for square in squares)])
    return markdown(["mean square of the gradient, over the FFN's", *KINDS], *lines)
