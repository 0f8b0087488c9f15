"""Ramasinghe et al. 2026: does the loss become sharper with depth?"""

import itertools

from papers.lib.experiment import Claim, Model, choices, fresh, log_slope, sharpness, spread, table_of

SCALES = {"branches × 1": {"branch_scale": "1"}, "branches × 1/L": {"branch_scale": "L^-1"}}
DEPTHS = choices("n_layer", 6, 12, 24, name="L {}")
TIMES = ("before training", "after")


def curvature(run):
    """The largest eigenvalue of the Hessian on a batch: [before training, after]."""
    return [sharpness(fresh(run)), sharpness(Model(run.folder))]


MEASURES = {"curvature": curvature}


def claims(runs):
    def slope(scale, time):
        rows = runs.where(**SCALES[scale])
        return log_slope([float(row["n_layer"]) for row in rows], [row["curvature"][TIMES.index(time)] for row in rows])

    for time, must_hold in (("before training", True), ("after", False)):
        text = f"branches × 1, {time}: slope of log eigenvalue against log L"
        yield Claim(text, slope("branches × 1", time), 0.2, 3, must_hold)
    yield Claim("before training: slope of log eigenvalue, branches × 1 less branches × 1/L",
                slope("branches × 1", "before training") - slope("branches × 1/L", "before training"), 0.1, 3)


def table(runs):
    def table_at(index, time):
        return table_of(runs, f"largest eigenvalue, {time}", lambda **values: spread(
            runs.measured("curvature", **values)[:, index], "{:.3g}"), SCALES, DEPTHS)

    return "\n".join(itertools.starmap(table_at, enumerate(TIMES)))
