"""How a run diverged: the tensor that became non-finite first, and the growth in the steps before."""

from lib.logs import np
from lib.logs.runs import STEP_BYTES, UNLOGGED
from lib.logs.sites import HEAD_SITES, SITES, first_nonfinite, site_text

MOST_STEPS = 20  # logged steps before a divergence over which growth is measured
LEAST_GROWTH = 2.0  # a factor; less is not called growth


def divergence_text(run, step):
    """ "; the gradient of block 1 ffn_hidden became non-finite; activations had grown 30 times since step 20 (most:
    block 12 stream)": the first tensor that was not finite, from summary.json, and the largest growth in the steps
    before."""
    tensor = first_nonfinite(run)
    text = f"; {tensor} became non-finite; " if tensor else "; "
    return text + (_growth_of_layers(run, step) or "no layers are logged at a step before that")


def _growth_of_layers(run, step):
    """The largest growth of the sites' activations and gradients before the step, and at it where they are still
    finite; "" if nothing is logged."""
    names, depth = (*SITES, *HEAD_SITES), run.value("model.n_layer")
    if not (run.folder / "layers.csv").exists():
        return ""
    rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names), some=False,
                    last=(MOST_STEPS + 2) * STEP_BYTES * (depth + 2))
    steps = np.unique(rows[rows[:, 0] < step, 0])[-MOST_STEPS:]
    if not steps.size:
        return ""
    # {(layer, site): [rms, grad_rms]} at the first and the last of these steps and at the one that diverged
    first, latest, failing = ({(row[1], row[4]): row[2:4] for row in rows[rows[:, 0] == at]}
                              for at in (steps[0], steps[-1], step))
    grown = []
    for column, quantity in enumerate(("activations", "gradients")):
        ratios = [(now[site][column] / first[site][column], site) for now in (latest, failing) for site in now
                  if site in first and first[site][column] > 0 and np.isfinite(now[site][column])]
        ratio, (layer, name) = max(ratios, key=lambda entry: entry[0], default=(0, (0, 0)))
        if ratio >= LEAST_GROWTH:
            grown.append(f"{quantity} had grown {ratio:.3g} times since step {steps[0]:.0f} (most: "
                         f"{site_text(int(layer), names[int(name)], depth)})")
    return ", ".join(grown) or f"nothing had grown since step {steps[0]:.0f}"
