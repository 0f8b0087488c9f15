"""The experiments of configs/papers: how each is run and drawn, its table, and what it must show.

Ranges come from the papers, the laws at initialisation or what a reader would take for no difference; they were not fitted
to what one run gave. An experiment's question and source are in its JSON file.
"""

import math
import re
from dataclasses import dataclass
from typing import Callable

import papers_pictures as pictures
from papers_run import (run_batchnorm, run_growth, run_identity, run_residual, run_rmsnorm, run_theory, run_xiong,
                        sweep)
from runs import np

UNIGRAM = 3.08  # nats: what counting letters achieves on the bundled corpus
STUCK = UNIGRAM - 0.06, UNIGRAM + 0.1
LEARNS = 2.0, 2.8
RATES = ("0.001", "0.003", "0.01", "0.03")


@dataclass
class Claim:
    """What must come out: `measure` takes what an experiment found and gives a number within [low, high]."""
    text: str
    measure: Callable
    low: float
    high: float


@dataclass
class Experiment:
    """A file of configs/papers. `run`: (config file, out folder, quick) -> what it found; of that `table` gives Markdown,
    `draw` a figure (None: there is none), and the claims measure it."""
    name: str
    run: Callable
    table: Callable
    claims: list
    draw: Callable = None


# ---- measuring ------------------------------------------------------------------------------------------------


def mean(values):
    return sum(values) / len(values)


def final(**values):
    """A measure: the final validation loss of these runs, mean over seeds."""
    return lambda rows: mean(rows.losses(**values))


def in_rows(measure):
    """The same measure of an experiment that has more than a sweep's rows."""
    return lambda found: measure(found["rows"])


def paired(rows, key, one, other):
    """Over seeds, other's losses minus one's."""
    return [b - a for a, b in zip(rows.losses(**{key: one}), rows.losses(**{key: other}))]


def slope(found, placement):
    """Of log |dW2| of the last block against log L, by least squares."""
    points = [(math.log(layers), math.log(norms[:, -1].mean())) for (p, layers), norms in found.items() if p == placement]
    return float(np.polyfit(*zip(*points), 1)[0])


def largest_rate(rows, placement):
    """The largest rate up to which every rate ended below 2.9 nats; 0 if none."""
    best = 0.0
    for rate in RATES:
        if rows.losses(norm_placement=placement, lr=rate)[0] > 2.9:
            break
        best = float(rate)
    return best


def worst_off_law(found, placement):
    """The largest relative distance of the mean square from its law, over the layers."""
    measured, law = found[placement]
    return float(np.abs(measured.mean(axis=0) / law - 1).max())


def deepest(layers):
    return max(layers, key=lambda key: key[-1])[-1]


def thirds(by_block):
    """What the last third of the blocks has over what the first third has, mean over seeds and blocks."""
    values = by_block.mean(axis=0)
    third = len(values) // 3
    return values[-third:].mean() / values[:third].mean()


# ---- tables ---------------------------------------------------------------------------------------------------


def markdown(header, *rows):
    """A table; a minus sign is one."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return re.sub(r"(?<![\w.])-(?=\d)", "−", "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])) + "\n"


def spread(values, form="{:.3f}"):
    """Mean ± standard deviation of the seeds, as `compare` writes it."""
    values = np.array(values, float)
    if not np.isfinite(values).all():
        return "diverged"
    return form.format(values.mean()) + (f" ± {form.format(values.std(ddof=1))}".replace("+", "") if len(values) > 1 else "")


def xiong_table(found):
    expected = {"pre": "falls about as L^−½", "post": "does not depend on L"}
    depths = sorted({layers for _, layers in found})
    return markdown(["\\|dW2\\| of the last block", *(f"L {layers}" for layers in depths), "slope of log against log L", "theorem"],
                    *([p, *(spread(found[p, layers][:, -1], "{:.2f}") for layers in depths), f"{slope(found, p):.2f}",
                       expected[p]] for p in ("pre", "post")))


def growth_table(found):
    shown = [layer for layer in (1, 6, 12, 18, 24) if layer < len(next(iter(found.values()))[1])]
    return markdown(["mean square of the stream / law", *(f"x{layer}" for layer in shown), "worst layer"],
                    *([p, *(f"{measured[:, layer].mean():.2f} / {law[layer]:.2f}" for layer in shown),
                       f"{100 * worst_off_law(found, p):.1f}%"] for p, (measured, law) in found.items()))


def warmup_table(rows):
    rates = ("0.0005", "0.001", "0.003")

    def cell(**values):
        losses = rows.losses(**values)
        return f"**{spread(losses)}**" if mean(losses) < LEARNS[1] else spread(losses)

    return markdown(["validation loss (bold: learns)", *(f"lr {rate}" for rate in rates)],
                    *([p + (f", warm-up {w}" if w else ""), *(cell(norm_placement=p, warmup_steps=w, lr=rate) for rate in rates)]
                      for p in ("pre", "post") for w in (0, 200)))


def deep_table(rows):
    placements = ("post", "pre", "deepnorm", "rezero", "res_post", "mix")
    return markdown(["validation loss", *placements],
                    *([f"L {layers}", *(spread(rows.losses(norm_placement=p, n_layer=layers))
                                        if any(row["norm_placement"] == p and row["n_layer"] == str(layers)
                                               for row in rows.rows) else "" for p in placements)] for layers in (24, 48)))


def identity_table(found):
    def row(placement, name, values, form):
        third = values.shape[1] // 3
        parts = [values[:, i * third:(i + 1) * third].mean(axis=1) for i in range(3)]
        return [placement, name, *(spread(part, form) for part in parts)]

    return markdown(["", "", "first third of the blocks", "second", "last"],
                    *(row(p, name, found[kind][p], form) for p in found["angle"] for kind, name, form in
                      (("angle", "angle between input and output, degrees", "{:.1f}"),
                       ("skip", "rise of the loss without one block", "{:.4f}"))))


def residual_table(found):
    depths = sorted({layers for *_, layers in found["gradient"]})
    names = {("pre", True): "pre, with residuals", ("pre", False): "pre, without",
             ("none", True): "no norm, with residuals", ("none", False): "no norm, without"}
    return markdown(["gradient before block 1 over after block L / law", *(f"L {layers}" for layers in depths)],
                    *([name, *(f"{found['gradient'][*key, layers].mean():.2g} / {found['law'][*key, layers]:.2g}"
                               for layers in depths)] for key, name in names.items())) + "\n" + markdown(
        ["validation loss", "L 2", "L 24"],
        *([f"pre, {word}", *(spread(found["rows"].losses(residual=value, n_layer=layers)) for layers in (2, 24))]
          for value, word in (("true", "with residuals"), ("false", "without"))))


def batchnorm_table(found):
    sizes = sorted({size for _, size in found["gap"]})
    return markdown(["evaluation − training", *(f"batch {size}" for size in sizes)],
                    *([norm, *(spread(found["gap"][norm, size], "{:+.3f}") for size in sizes)]
                      for norm in ("batchnorm", "layernorm"))) + "\n" + markdown(
        ["validation loss", *(f"batch {size}" for size in sizes)],
        *([norm, *(spread(found["rows"].losses(norm=norm, batch_size=size)) for size in sizes)]
          for norm in ("batchnorm", "layernorm")))


def rmsnorm_table(found):
    return markdown(["", "validation loss", "ms of a step's norms, one thread", "of the whole step"],
                    *([norm, spread(found["rows"].losses(norm=norm)), f"{norms:.2f}", f"{whole:.1f}"]
                      for norm, (norms, whole) in found["cost"].items()),
                    ["rmsnorm − layernorm, by seed", spread(paired(found["rows"], "norm", "layernorm", "rmsnorm"), "{:+.4f}"),
                     *(f"{rms - layer:+.2f}" for layer, rms in zip(found["cost"]["layernorm"], found["cost"]["rmsnorm"]))])


def bias_table(rows):
    return markdown(["", "validation loss"],
                    *([name, spread(rows.losses(ffn_bias=value))] for name, value in
                      (("FFN without biases", "false"), ("with", "true"))),
                    ["with − without, by seed", spread(paired(rows, "ffn_bias", "false", "true"), "{:+.4f}")])


def without_table(rows):
    rates = ("0.0003", "0.001", "0.003")
    cells = [(f"L {layers}, {name}", {"norm": norm, "n_layer": layers}) for layers in (2, 12)
             for norm, name in (("layernorm", "with norms"), ("none", "without"))]
    return markdown(["validation loss", *(f"lr {rate}" for rate in rates)],
                    *([name, *(spread(rows.losses(lr=rate, norm_affine="true", **values)) for rate in rates)] for name, values in cells),
                    ["L 12, norms without gain and bias", "", spread(rows.losses(name="plain")), ""])


def without_norms(layers, rate):
    """A measure: what the loss without norms is above that with norms."""
    return lambda rows: (mean(rows.losses(norm="none", n_layer=layers, lr=rate))
                         - mean(rows.losses(norm="layernorm", n_layer=layers, lr=rate, norm_affine="true")))


def off_theory(found, name, what):
    """(mean over the layers of the relative distance of the rms from theory, the same of the seeds' standard error)."""
    measured, expected = found[name][what]
    squares = measured ** 2
    error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares)) / squares.mean(axis=0) / 2
    return float(np.abs(expected / np.sqrt(squares.mean(axis=0)) - 1).mean()), float(error.mean())


def worst_off_theory(found, what, limit):
    """The largest of them over what is allowed: the limit, or two standard errors."""
    pairs = [off_theory(found, name, what) for name in found]
    return max(off / max(limit, 2 * error) for off, error in pairs)


def theory_table(found):
    def ratio(pair):
        return f"{pair[0] / pair[-1]:.3g}"

    def cells(name):
        measured, expected = found[name]["grad"]
        return [*("{:.1f}% ({:.1f})".format(*(100 * x for x in off_theory(found, name, what))) for what in ("rms", "grad")),
                f"{ratio(np.sqrt((measured ** 2).mean(axis=0)))} / {ratio(expected)}"]

    return markdown(["rms of the stream, off theory (seeds' standard error)", "activation", "gradient",
                     "gradient at x_0 over x_L / theory"], *([name, *cells(name)] for name in found))


def init_table(rows):
    cells = {name: rows.losses(name=name) for name in ("xavier-pre", "xavier-post", "gpt2-pre", "gpt2-post")}
    return markdown(["validation loss", "pre", "post", "post − pre"],
                    *([name, spread(cells[f"{key}-pre"]), spread(cells[f"{key}-post"]),
                       spread([b - a for a, b in zip(cells[f"{key}-pre"], cells[f"{key}-post"])], "{:+.3f}")]
                      for key, name in (("xavier", "Xavier, unit embeddings"), ("gpt2", "GPT-2's (0.02, projections by 1/√(2L))"))))


def stable_lr_table(rows):
    return markdown(["validation loss", *(f"lr {rate}" for rate in RATES), "largest rate that learns"],
                    *([p, *(spread(rows.losses(norm_placement=p, lr=rate)) for rate in RATES), f"{largest_rate(rows, p):g}" if
                       largest_rate(rows, p) else "none"] for p in ("post", "deepnorm", "pre", "sandwich", "res_post")))


# ---- the table of experiments -------------------------------------------------------------------------------------

EXPERIMENTS = [
    Experiment("xiong", run_xiong, xiong_table, [
        Claim("pre: slope of log |dW2| of block L against log L", lambda f: slope(f, "pre"), -0.55, -0.35),
        Claim("post: the same", lambda f: slope(f, "post"), 0.0, 0.2),
        Claim("pre, L 14: |dW2| of block 1 over block L, law's √((1 + 1.5 L)/2.5) = 3.0",
              lambda f: float(np.divide(*f["pre", 14].mean(axis=0)[[0, -1]])), 2.2, 3.8),
    ], pictures.xiong),
    Experiment("growth", run_growth, growth_table, [
        Claim(f"{p}: the stream's worst layer, from its law", lambda f, p=p: worst_off_law(f, p), 0, 0.05)
        for p in ("pre", "pre_scaled", "sandwich", "peri", "post")
    ], pictures.growth),
    Experiment("theory", run_theory, theory_table, [
        Claim("worst activation over what is allowed: 2%, or two standard errors", lambda f: worst_off_theory(f, "rms", 0.02), 0, 1),
        Claim("worst gradient over what is allowed: 5%, or two standard errors", lambda f: worst_off_theory(f, "grad", 0.05), 0, 1),
    ], pictures.theory),
    Experiment("identity", run_identity, identity_table, [
        *(Claim(f"{p}: learns", in_rows(final(norm_placement=p)), *LEARNS) for p in ("pre", "pre_scaled", "deepnorm")),
        *(Claim(f"{p}: angle, last third of the blocks over first", lambda f, p=p: thirds(f["angle"][p]), low, high)
          for p, low, high in (("pre", 0, 0.5), ("pre_scaled", 0, 0.5), ("deepnorm", 0.5, 1.2))),
        Claim("pre: largest rise of the loss without one block of the last third",
              lambda f: float(f["skip"]["pre"].mean(axis=0)[-(f["skip"]["pre"].shape[1] // 3):].max()), -0.02, 0.02),
        Claim("pre: rise of the loss without a block, last third over first", lambda f: thirds(f["skip"]["pre"]), -0.5, 0.5),
    ], pictures.identity),
    Experiment("warmup", sweep, warmup_table, [
        *(Claim(f"pre, warm-up {w}, lr {lr}: learns", final(norm_placement="pre", warmup_steps=w, lr=lr), *LEARNS)
          for w in (0, 200) for lr in ("0.0005", "0.001", "0.003")),
        Claim("post, no warm-up, lr 0.001: the unigram level", final(norm_placement="post", warmup_steps=0, lr="0.001"), *STUCK),
        Claim("post, no warm-up, lr 0.003: the unigram level", final(norm_placement="post", warmup_steps=0, lr="0.003"), *STUCK),
        *(Claim(f"post, lr {lr}: what a warm-up of 200 gains",
                lambda rows, lr=lr: mean(rows.losses(norm_placement="post", warmup_steps=0, lr=lr))
                - mean(rows.losses(norm_placement="post", warmup_steps=200, lr=lr)), 0.05, 1)
          for lr in ("0.0005", "0.001")),
    ], pictures.warmup),
    Experiment("deep", sweep, deep_table, [
        *(Claim(f"post at L {layers}: the unigram level", final(norm_placement="post", n_layer=layers), *STUCK)
          for layers in (24, 48)),
        *(Claim(f"{p} at L 24: learns", final(norm_placement=p, n_layer=24), *LEARNS)
          for p in ("pre", "deepnorm", "rezero", "res_post")),
        *(Claim(f"{p} at L 48: learns", final(norm_placement=p, n_layer=48), *LEARNS) for p in ("pre", "deepnorm")),
    ], pictures.deep),
    Experiment("residual", run_residual, residual_table, [
        Claim("no norm, no residuals, deepest: log10 of the gradient before block 1",
              lambda f: math.log10(f["gradient"]["none", False, deepest(f["gradient"])].mean()), -9, -5),
        Claim("no norm, with residuals: the same", lambda f: math.log10(f["gradient"]["none", True, deepest(f["gradient"])].mean()),
              9, 13),
        Claim("pre, with residuals, over its law", lambda f: (lambda key: f["gradient"][key].mean() / f["law"][key])(
            ("pre", True, deepest(f["gradient"]))), 0.7, 1.5),
        *(Claim(f"pre, L {layers}, with residuals: learns", in_rows(final(residual="true", n_layer=layers)), *LEARNS)
          for layers in (2, 24)),
        Claim("pre, L 2, without: learns", in_rows(final(residual="false", n_layer=2)), 2.0, 2.9),
        Claim("pre, L 24, without: the unigram level", in_rows(final(residual="false", n_layer=24)), *STUCK),
    ], pictures.residual),
    Experiment("batchnorm", run_batchnorm, batchnorm_table, [
        Claim("batch 2: batchnorm's gap minus layernorm's", lambda f: mean(f["gap"]["batchnorm", 2])
              - mean(f["gap"]["layernorm", 2]), 0.1, 2),
        Claim("batch 32: the same", lambda f: mean(f["gap"]["batchnorm", 32]) - mean(f["gap"]["layernorm", 32]), -0.05, 0.05),
    ], pictures.batchnorm),
    Experiment("rmsnorm", run_rmsnorm, rmsnorm_table, [
        Claim("rmsnorm minus layernorm, by seed", lambda f: mean(paired(f["rows"], "norm", "layernorm", "rmsnorm")), -0.05, 0.05),
        Claim("time of a step's norms, rmsnorm's over layernorm's", lambda f: f["cost"]["rmsnorm"][0] / f["cost"]["layernorm"][0],
              0.3, 1.3),
    ]),
    Experiment("bias", sweep, bias_table, [
        Claim("biased minus bias-free FFN, by seed", lambda rows: mean(paired(rows, "ffn_bias", "false", "true")), -0.05, 0.05),
    ]),
    Experiment("without", sweep, without_table, [
        *(Claim(f"L 2, lr {rate}: what is lost without norms", without_norms(2, rate), -0.1, 0.25) for rate in ("0.0003", "0.001", "0.003")),
        *(Claim(f"L 12, lr {rate}: the same", without_norms(12, rate), 0.4, 1e4) for rate in ("0.0003", "0.001", "0.003")),
        Claim("L 12: what norms lose without gain and bias",
              lambda rows: mean(rows.losses(name="plain")) - mean(rows.losses(norm="layernorm", n_layer=12, lr="0.001", norm_affine="true")),
              -0.1, 0.1),
    ]),
    Experiment("init", sweep, init_table, [
        Claim("Xavier, pre: learns", final(name="xavier-pre"), *LEARNS),
        Claim("Xavier, post: the unigram level", final(name="xavier-post"), *STUCK),
        Claim("GPT-2's, post minus pre: no contrast",
              lambda rows: mean(rows.losses(name="gpt2-post")) - mean(rows.losses(name="gpt2-pre")), -0.2, 0.2),
    ]),
    Experiment("stable_lr", sweep, stable_lr_table, [
        Claim("post: largest rate that learns", lambda rows: largest_rate(rows, "post"), 0, 0),
        *(Claim(f"{p}: largest rate that learns", lambda rows, p=p: largest_rate(rows, p), 0.003, 1)
          for p in ("pre", "sandwich", "res_post", "deepnorm")),
    ]),
]
