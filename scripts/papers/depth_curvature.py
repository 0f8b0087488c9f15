"""Ramasinghe et al. 2026: does the loss become sharper with depth?"""

from papers.depth_rate import SCALES
from papers.lib.experiment import Claim, Model, depths, fresh, log_slope, sharpness, spread, table_of

DEPTHS = depths(6, 12, 24)
TIMES = ("before training", "after")


def measure(run):
    """The largest eigenvalue of the Hessian on a batch."""
    return {"before training": sharpness(fresh(run)), "after": sharpness(Model(run.folder))}


def claims(runs):
    def slope(scale, time):
        depth, eigenvalue = (runs.measured(name, **SCALES[scale]).astype(float) for name in ("n_layer", time))
        return log_slope(depth, eigenvalue)

    for time, must_hold in (("before training", True), ("after", False)):
        text = f"branches × 1, {time}: slope of log eigenvalue against log L"
        yield Claim(text, slope("branches × 1", time), 0.2, 3, must_hold)
    yield Claim("before training: slope of log eigenvalue, branches × 1 less branches × 1/L",
                slope("branches × 1", "before training") - slope("branches × 1/L", "before training"), 0.1, 3)


def table(runs):
    def table_at(time):
        return table_of(runs, f"largest eigenvalue, {time}",
                        lambda **values: spread(runs.measured(time, **values), "{:.3g}"), SCALES, DEPTHS)

    return "\n".join(map(table_at, TIMES))
