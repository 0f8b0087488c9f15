"""Wang et al. 2025: the kinds of parameters by sharpness. The mean square of the gradient stands for it."""

import re

from papers.lib.experiment import Claim, markdown, np, read_csv

KINDS = {"embeddings": r"embed\.", "q, k": r"attn\.[qk]\.", "FFN": r"ffn\.", "v, o": r"attn\.(v|out)\.",
         "norms": r"_norm\."}
TIMES = ("step 1", "after warm-up")


def mean_squares(run):
    """The mean square of the gradient by kind of parameter: [at step 1, over the logged steps of the last half]."""
    rows = read_csv(run.folder / "params.csv")
    half = int(rows[-1]["step"]) / 2

    def by_kind(chosen):
        result = []
        for pattern in KINDS.values():
            rows_of_kind = [row for row in chosen if re.search(pattern, row["param"])]
            squares = sum(float(row["grad_norm"])**2 for row in rows_of_kind)
            result.append(squares / sum(int(row["numel"]) for row in rows_of_kind))
        return result

    first, later = ([row for row in rows if row["step"] == "1"], [row for row in rows if int(row["step"]) > half])
    return [by_kind(first), by_kind(later)]


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
