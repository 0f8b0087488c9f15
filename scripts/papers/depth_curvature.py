"""Ramasinghe et al. 2026: does the loss become sharper with depth?"""

from papers.depth_rate import SCALES
from papers.lib.experiment import Claim, Model, choices, fresh, log_slope, sharpness, spread, table_of

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
    def table_at(time):
        return table_of(runs, f"largest eigenvalue, {time}", lambda **values: spread(
            runs.measured("curvature", **values)[:, TIMES.index(time)], "{:.3g}"), SCALES, DEPTHS)

    return "\n".join(map(table_at, TIMES))
