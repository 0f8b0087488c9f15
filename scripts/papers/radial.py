"""The length and the direction of weights before a norm: steps can only lengthen them, decay only shortens them."""

from papers.lib.experiment import Claim, Model, Panel, Probed, choices, fresh, markdown, np, picture_of, unit

MATRICES = ("ffn.in", "ffn.out", "attn.out")  # before a norm
CONTROL = "head"  # whose length matters to the loss
POINTS = 38  # of a line in the picture
DECAYS = choices("weight_decay", "0", "0.003", name="decay {}")


def law_of_length(first, gradients, rate, decay):
    """The lengths before each step and after the last, from the first one and the norms of the gradients: gradients are
    orthogonal to the weights, decay is parallel to them."""
    squares = [first ** 2]
    for gradient in gradients:
        squares.append((1 - rate * decay) ** 2 * squares[-1] + rate ** 2 * gradient ** 2)
    return np.sqrt(squares)


def lengths(run):
    """For each of MATRICES and the control, all of a kind together, by step: [length, its law from the logged
    gradients]."""
    rate, decay = run.value("train.lr"), run.value("train.weight_decay")
    rows, result = list(run.records("params.csv")), []
    for matrix in (*MATRICES, CONTROL):
        own = [row for row in rows if row["param"].endswith(f"{matrix}.weight")]
        steps = np.array([row["step"] for row in own])
        at = np.unique(steps, return_inverse=True)[1]
        length = np.sqrt(np.bincount(at, [row["rms"] ** 2 * row["numel"] for row in own]))
        gradients = np.sqrt(np.bincount(at, [row["grad_norm"] ** 2 for row in own]))
        result.append([length, law_of_length(length[0], gradients[:-1], rate, decay)])
    return result


def turned(run):
    """For each of MATRICES and the control: [cosine of the trained matrices with their start, the law's]."""
    models = fresh(run).weights, Model(run.folder).weights
    shrunk, result = (1 - run.value("train.lr") * run.value("train.weight_decay")) ** run.value("train.steps"), []
    for matrix in (*MATRICES, CONTROL):
        start, end = (np.concatenate([array.ravel() for name, array in weights.items()
                                      if name.endswith(f"{matrix}.weight")]).astype(float) for weights in models)
        result.append([unit(start) @ unit(end), shrunk * np.linalg.norm(start) / np.linalg.norm(end)])
    return result


def measure(run):
    """For each of MATRICES and the control: `lengths` and their law at POINTS `steps`, `turned`, and `off`, the largest
    distance of a length over its law from 1. `change`, for each of MATRICES: the smallest change of a length in a step,
    over the length."""
    every, steps = np.array(lengths(run)), np.linspace(1, run.value("train.steps"), POINTS).round()
    length, law = every[:, 0], every[:, 1]
    return {"steps": steps, "lengths": every[:, :, steps.astype(int) - 1], "turned": turned(run),
            "off": np.abs(length / law - 1).max(axis=1), "change": (np.diff(length) / length[:, :-1])[:-1].min(axis=1)}


def claims(runs):
    for name, values in DECAYS.items():
        yield Claim(f"{name}: worst length over its law, less 1", runs.measured("off", **values)[:, :-1].max(), 0, 1e-3)
    yield Claim("decay 0: the smallest change of a length in a step, over the length",
                runs.measured("change", **DECAYS["decay 0"]).min(), -1e-6, 1)
    yield Claim("decay 0: length of the head, which matters to the loss, over its law, less 1",
                runs.measured("off", **DECAYS["decay 0"])[:, -1].max(), 0.01, 10)
    free, decayed = (runs.measured("lengths", **values)[:, :-1, 0, -1] for values in DECAYS.values())
    yield Claim("decay 0.003 over 0: length at the end, mean", (decayed / free).mean(), 0.3, 0.95)
    for name, values in DECAYS.items():
        for matrix, (cosine, law) in zip(MATRICES, runs.measured("turned", **values).mean(axis=0)):
            yield Claim(f"{name}, {matrix}: cosine with the start over its law", cosine / law, 0.8, 1.2)


def table(runs):
    lines = []
    for name, values in DECAYS.items():
        lengths_of, cosines = (runs.measured(measure, **values).mean(axis=0) for measure in ("lengths", "turned"))
        for matrix, (length, law), (cosine, expected) in zip((*MATRICES, CONTROL), lengths_of, cosines):
            lines.append([f"{name}, {matrix}", f"{length[0]:.3g}", f"{length[-1]:.4g} / {law[-1]:.4g}",
                          f"{np.degrees(np.arccos(cosine)):.0f}° / {np.degrees(np.arccos(min(expected, 1))):.0f}°"])
    return markdown(["", "length at the start", "at the end / law", "turned / law"], *lines)


def picture(runs):
    measured = {name: runs.measured("lengths", **values) for name, values in DECAYS.items()}
    panels = [Panel(matrix, "length", {name: Probed(values[:, number, 0], values[:, number, 1].mean(axis=0))
                                       for name, values in measured.items()}, x=("step", runs.measured("steps")[0]))
              for number, matrix in enumerate(MATRICES)]
    return picture_of("Length of weights before a norm, plain SGD", panels, "dashed: law")
