"""Kanavalau et al. 2026: pre-norm's final norm anchors the scale of what the head reads."""

from papers.lib.experiment import Claim, Model, curve, learns, loss_table, unit

LINES = {"with a final norm": {"final_norm": "true"}, "without": {"final_norm": "false"}}


def measure(run):
    """`radial`: the cosine of the last block's output and the negative of its gradient, mean over the tokens of a
    batch; above 0, growing the output lowers the loss. `logits`: their rms at the last logged step."""
    model = Model(run.folder)
    gradient = model.tensors[f"act_grad.{run.value('model.n_layer')}.stream"].astype(float)
    radial = -(unit(model.streams[-1]) * unit(gradient)).sum(-1).mean()
    return {"radial": radial, "logits": curve(run, "logits")[1][-1]}


def claims(runs):
    for name, values in LINES.items():
        yield learns(name, runs.loss(**values))
    with_norm, without = (runs.measured("radial", **values) for values in LINES.values())
    yield Claim("with: |cosine| of x_L and its gradient", abs(with_norm).max(), 0, 0.01)
    yield Claim("without: cosine of x_L and the negative of its gradient", without.mean(), 0.01, 1)
    with_norm, without = (runs.measured("logits", **values).mean() for values in LINES.values())
    yield Claim("rms of the logits at the end, without over with", without / with_norm, 1, 10)


table = loss_table(LINES)
