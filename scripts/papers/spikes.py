"""Adam's spikes (arXiv 2506.04805): v decays while gradients are small, until a curvature passes what Adam bears."""

from lib.logs import safetensors_io
from papers.lib.experiment import Claim, Model, Panel, choices, markdown, np, picture_of, spread

BETAS = choices("beta2", "0.9", "0.99", "0.999", name="β2 {}")
CALM, GROWING, LAST = 200, 222, 600  # steps; the first two of β2 0.999 with seed 1
SEED_1 = {"steps": LAST, "every": 1, "seed": 1}
FIRST, BEFORE = 100, 50  # the step after which spikes count; the steps before a spike in which its calm lies


def spike(run):
    """Of the rows after step FIRST: [the largest gradient over the smallest of the rows before, the largest loss less
    the smallest before, the largest grad_norm, the largest grad_norm_max]."""
    step, loss, gradient, largest = run.rows("metrics.csv", ("step", "train_loss", "grad_norm", "grad_norm_max")).T
    late = range(min(np.searchsorted(step, FIRST, "right"), len(step) - 1), len(step))
    grew, rose = np.array([[gradient[row] / gradient[max(0, row - BEFORE):row].min(),
                            loss[row] - loss[max(0, row - BEFORE):row].min()] for row in late]).max(axis=0)
    return [grew, rose, gradient[late].max(), largest[late].max()]


def curves(run):
    """[|g|, √Σv] at steps FIRST + 1 to 300 of LAST; Σv, over all parameters, follows from the gradients' norms."""
    beta, (gradient,) = run.value("train.beta2"), run.rows("metrics.csv", ("grad_norm",)).T
    v = np.convolve(np.square(gradient), (1 - beta) * beta ** np.arange(len(gradient)))[:len(gradient)]
    shown = slice(FIRST, 300 if len(gradient) == LAST else FIRST)
    return [gradient[shown], np.sqrt(v)[shown]]


def curvature(run):
    """The curvature u'Hu / u'g along the step of Adam's next gradient, u = g/√v, over what Adam bears,
    2/lr (1 + β1)/(1 − β1). Hu is a difference of gradients."""
    model, (moments, _) = Model(run.folder), safetensors_io.read(run.folder / "checkpoint.safetensors")
    rate, beta1, beta2 = (run.value(f"train.{key}") for key in ("lr", "beta1", "beta2"))
    known = 1 - beta2 ** int(model.step)  # the share of v that is no longer its start, 0
    g = {name: model.tensors[f"grad.{name}"].astype(float) for name in model.weights}
    u = {name: g[name] / (np.sqrt(moments[f"optim.v.{name}"] / known) + 1e-8) for name in g}
    h = 1e-3 / max(np.abs(part).max() for part in u.values())
    up, down = (model.dump({name: model.weights[name] + sign * h * u[name] for name in u}) for sign in (1, -1))
    along = sum((u[name] * (up[f"grad.{name}"].astype(float) - down[f"grad.{name}"])).sum() / (2 * h) for name in u)
    return rate / 2 * (1 - beta1) / (1 + beta1) * along / sum((u[name] * g[name]).sum() for name in u)


def measure(run):
    gradient, root = curves(run)
    return {"spike": spike(run), "gradient": gradient, "root": root, "curvature": curvature(run)}


def measured(runs, measure, beta, steps=LAST):
    return runs.measured(measure, **BETAS[beta], steps=steps, every=1)


def claims(runs):
    others = {beta: measured(runs, "spike", beta)[1:].mean(axis=0) for beta in BETAS}
    for beta, low, high in (("β2 0.999", 10, 1000), ("β2 0.9", 1, 10)):
        yield Claim(f"{beta}: growth of the gradient within {BEFORE} steps, seeds 2 and 3", others[beta][0], low, high)
    yield Claim(f"β2 0.999 over 0.9: rise of the loss within {BEFORE} steps, seeds 2 and 3",
                others["β2 0.999"][1] / others["β2 0.9"][1], 2, 1000)
    root = measured(runs, "root", "β2 0.999")[0, [CALM - FIRST - 1, GROWING - FIRST - 1]]
    yield Claim(f"β2 0.999, seed 1: log of v's decay from step {CALM} to {GROWING}, over that of β2^t",
                2 * np.log(root[1] / root[0]) / (GROWING - CALM) / np.log(0.999), 0.8, 1.02)
    for step, low, high in ((CALM, 0, 1), (GROWING, 1, 1.5)):
        yield Claim(f"β2 0.999, seed 1, step {step}: curvature along the step, over what Adam bears",
                    measured(runs, "curvature", "β2 0.999", step)[0], low, high)
    *_, of_rows, of_maxima = runs.measured("spike", every=50).T
    yield Claim("rows of 50 steps: largest grad_norm_max, over the largest gradient of all steps",
                (of_maxima / measured(runs, "spike", "β2 0.999")[:, 2]).mean(), 0.999, 1.001)
    yield Claim("rows of 50 steps: largest grad_norm over that", (of_rows / of_maxima).mean(), 0, 0.9)


def table(runs):
    lines = [[beta, *map(spread, measured(runs, "spike", beta)[:, :2].T, ("{:.1f}", "{:.4f}"))] for beta in BETAS]
    return markdown([f"largest within {BEFORE} steps", "growth of the gradient", "rise of the loss (nats)"], *lines)


def picture(runs):
    panels = [Panel(beta, "norm of the gradient", runs.lines("gradient", {beta: values}, "root", **SEED_1), True, FIRST,
                    ("step", range(FIRST + 1, 301))) for beta, values in BETAS.items()]
    return picture_of("The gradient of one batch, step by step", panels, "dashed: √v, of all parameters together")
