"""The experiments of configs/papers: how each is run and drawn, its table, and what it must show.

Ranges come from the papers, the laws at initialisation or what a reader would take for no difference; they were not fitted
to what one run gave. An experiment's question and source are in its JSON file.
"""

import math
from dataclasses import dataclass
from typing import Callable

from lib import papers_pictures as pictures
from lib import papers_tables as tables
from lib.papers_run import (SIZED, amplification, angles, curvature, curve, first_loss, first_over_last, gap, last_gradients,
                            losses_without_blocks, mean_entropy, mean_squares, measuring, over_last, over_law, probing, radial, shares,
                            stream, sweep, together, token_cosines)
from lib.papers_tables import (LEARNS, STUCK, behind, beside_theory, curvature_slope, final, grid, last_rms, less, losses, of,
                               out_of_order_kinds, over, paired, placements, rates, sensitivity, several, spread, thirds, values_of,
                               worst_off)
from lib.runs import np


@dataclass
class Claim:
    """What must come out: `measure` takes what an experiment found and gives a number within [low, high]. `holds`: whether it did where
    the page was written, by more than seeds differ."""
    text: str
    measure: Callable
    low: float
    high: float
    holds: bool = True


@dataclass
class Experiment:
    """A file of configs/papers. `run`: (config file, out folder, quick) -> what it found; of that `table` gives Markdown and `draw` a
    figure (None: there is none), and the claims measure it."""
    name: str
    run: Callable
    table: Callable | None
    claims: list
    draw: Callable = None


def learns(text, **values):
    """A claim on the final loss of the runs that have these values."""
    return Claim(f"{text}: learns", final(**values), *LEARNS)


def stays(text, **values):
    return Claim(f"{text}: the unigram level", final(**values), *STUCK)


def rate_that_learns(line, *tried):
    """A measure: the largest of the rates up to which every rate ended below 2.9 nats; 0 if none."""
    def largest(found):
        best = "0"
        for rate in tried:
            if final(**line, lr=rate)(found) > 2.9:
                break
            best = rate
        return float(best)
    return largest


def lost_by_rate(shallow, deep, *tried):
    """A measure: what the deep runs lose at that of the rates which is best for the shallow ones, beside their own best."""
    def lost(found):
        of_shallow, of_deep = ([final(**line, lr=rate)(found) for rate in tried] for line in (shallow, deep))
        return of_deep[of_shallow.index(min(of_shallow))] - min(of_deep)
    return lost


WARMUPS = {p + (f", warm-up {w}" if w else ""): {"norm_placement": p, "warmup_steps": w} for p in ("pre", "post") for w in (0, 200)}
RATED = placements("post", "deepnorm", "pre", "sandwich", "res_post")
RESIDUALS = {"pre, with residuals": {"residual": "true"}, "pre, without": {"residual": "false"}}
QK = {"without": {"qk_norm": "false"}, "with": {"qk_norm": "true"}}
DEPTHS = values_of("n_layer", 6, 12, 24, 48, name="L {}")
BATCHES = values_of("batch_size", 2, 4, 8, 32, name="batch {}")
SCALED = {"branches × 1": {"branch_scale": "1"}, "branches × 1/L": {"branch_scale": "L^-1"}}
DEEP = {f"{p}, L {layers}": {"norm_placement": p, "n_layer": layers} for p in ("pre", "deepnorm", "keel") for layers in (24, 48, 96)}
BIASES = {"FFN without biases": {"ffn_bias": "false"}, "with": {"ffn_bias": "true"}}
WITHOUT = {**{f"L {layers}, with norms": {"norm": "layernorm", "n_layer": layers, "norm_affine": "true"} for layers in (2, 12)},
           **{f"L {layers}, without": {"norm": "none", "n_layer": layers} for layers in (2, 12)},
           "L 12, norms without gain and bias": {"norm_affine": "false"}}
PRECISIONS = {"float32": {"precision": "fp32"}, "bf16": {"precision": "bf16"}}
NORMS = values_of("norm", "layernorm", "dyt", "derf")
INITS = {"Xavier, unit embeddings": {"scheme": "xavier_normal"}, "GPT-2's (0.02, projections by 1/√(2L))": {"scheme": "gpt2"}}
HYBRID = placements("pre", "hybrid", "hybrid_star")
BATCH_NORMS = values_of("norm", "batchnorm", "layernorm")
PRORES = placements("pre", "post", "sandwich", "deepnorm", "pre_scaled")
ROOTED = {"branches × 1": {"branch_scale": "1"}, "branches × L^-½": {"branch_scale": "L^-0.5"}}
ANCHORS = {"with a final norm": {"final_norm": "true"}, "without": {"final_norm": "false"}}
MUON = {**{f"{optimizer}, {norm}": {"optimizer": optimizer, "norm": norm, "norm_alpha": alpha} for optimizer in ("adamw", "muon")
           for norm, alpha in (("rmsnorm", ""), ("dyt", "0.5"), ("derf", "0.5"))},
        "muon, derf, α 0.3": {"optimizer": "muon", "norm": "derf", "norm_alpha": "0.3"}}
ROUNDED = "pre", "sandwich", "deepnorm", "post"
GAPS = {name: behind(MUON[name.partition(",")[0] + ", rmsnorm"], **own) for name, own in MUON.items()}
FEW, SOME = ("0.0005", "0.001", "0.003"), ("0.001", "0.003", "0.01")
WIDE, HIGH = (*SOME, "0.03", "0.1"), ("0.003", "0.01", "0.03", "0.1")

KEPT = "pre", "post", "deepnorm", "keel", "sandwich", "res_post", "hybrid"
ATTENTION = {**placements("pre", "post", "sandwich", "res_post"), "pre, QK norm": {"qk_norm": "true"}}
THEORY = {**placements("pre", "post", "sandwich", "res_post", "deepnorm", "keel", "hybrid", "subln"),
          "post, SwiGLU, L 24": {"norm_placement": "post", "activation": "swiglu", "n_layer": 24},
          "pre, RoPE, QK norm": {"position": "rope", "qk_norm": "true"}, "pre, DyT": {"norm": "dyt"},
          "res_post, DyT": {"norm_placement": "res_post", "norm": "dyt"},
          "post, DyT": {"norm_placement": "post", "norm": "dyt"},
          "pre, GPT-2's init, tied": {"init.scheme": "gpt2", "init.embed_std": 0.02, "tie_embeddings": "true"}}

EXPERIMENTS = [
    Experiment("xiong", probing({(p, layers): {"norm_placement": p, "n_layer": layers} for p in ("pre", "post")
                                 for layers in (6, 8, 10, 12, 14, 24, 48)}, last_gradients, seeds=16), None, [
        Claim("pre: slope of log |dW2| of block L against log L", lambda f: tables.slope(f, "pre"), -0.55, -0.35),
        Claim("post: the same", lambda f: tables.slope(f, "post"), 0.0, 0.2),
        Claim("pre, L 14: |dW2| of block 1 over block L, law's √((1 + 1.5 L)/2.5) = 3.0",
              lambda f: float(first_over_last(f["pre", 14][0].mean(axis=0))), 2.2, 3.8),
    ], pictures.xiong),
    Experiment("growth", probing(placements("pre", "pre_scaled", "post", "sandwich", "peri"), lambda folder: stream("rms")(folder)**2,
                                 lambda law: law["rms"]**2, seeds=16), None, [
        Claim(f"{p}: the stream's worst layer, from its law", lambda f, p=p: worst_off({p: f[p]}), 0, 0.05)
        for p in ("pre", "pre_scaled", "sandwich", "peri", "post")
    ], pictures.growth),
    Experiment("dyt_growth", probing({(norm, layers): {"norm": norm, "n_layer": layers} for norm in ("layernorm", "dyt")
                                      for layers in (6, 12, 24, 48, 96)}, lambda folder: first_over_last(stream("grad_rms")(folder)),
                                     lambda law: first_over_last(law["grad"])), None, [
        *(Claim(f"{norm}: the worst depth, from its law", lambda f, norm=norm: worst_off(
            {key: pair for key, pair in f.items() if norm in key}), 0, 0.1) for norm in ("layernorm", "dyt")),
        Claim("dyt: logarithm of the growth, L 96 over L 24 (law exp(c√L): 2)", lambda f: tables.doubling(f, "dyt"), 1.8, 2.4),
        Claim("layernorm: the same (law √(1 + 1.5 L): 1.38)", lambda f: tables.doubling(f, "layernorm"), 1.2, 1.5),
    ]),
    Experiment("laws", together(
        kept=probing(placements(*KEPT), lambda folder: stream("rms")(folder) * stream("grad_rms")(folder)),
        share=probing(placements(*KEPT), shares, lambda law: law["share"]),
        activations=probing({name: {"norm_placement": "post", "activation": name, "n_layer": 24}
                             for name in ("relu", "gelu", "silu", "swiglu")}, lambda folder: over_last(stream("grad_rms")(folder)),
                            lambda law: over_last(law["grad"])),
        entropy=probing(ATTENTION, mean_entropy, lambda law: law["entropy"], config="theory")), None, [
        Claim("rms of x times its gradient's, x_0 over x_L, the placement farthest from 1", lambda f: max(
            (float((kept[:, 0] / kept[:, -1]).mean()) for kept, _ in f["kept"].values()), key=lambda ratio: abs(math.log(ratio))), 0.8, 1.2),
        Claim("cos(x_0, x_l): the worst layer of all placements, less its law", lambda f: worst_off(f["share"], relative=False), 0, 0.03),
        Claim("post, SwiGLU, L 24: |dx_0| over |dx_L| (law ((1 + 0.735)/(1 + 0.356))^12: 19)",
              lambda f: float(f["activations"]["swiglu"][0][:, 0].mean()), 15, 25),
        Claim("post, ReLU, L 24: the same (law 1)", lambda f: float(f["activations"]["relu"][0][:, 0].mean()), 0.8, 1.25),
        Claim("entropy of attention: the worst block of all variants, from theory", lambda f: worst_off(f["entropy"]), 0, 0.1),
    ], pictures.laws),
    Experiment("theory", together(rms=probing(THEORY, stream("rms"), lambda law: law["rms"]),
                                  grad=probing(THEORY, stream("grad_rms"), lambda law: law["grad"])), tables.theory, [
        Claim("worst activation over what is allowed: 2%, or two standard errors", lambda f: tables.worst_off_theory(f, "rms", 0.02), 0, 1),
        Claim("worst gradient over what is allowed: 5%, or two standard errors", lambda f: tables.worst_off_theory(f, "grad", 0.05), 0, 1),
    ], pictures.theory),
    Experiment("identity", measuring(angle=angles, skip=losses_without_blocks), None, [
        *(learns(p, norm_placement=p) for p in ("pre", "pre_scaled", "deepnorm")),
        *(Claim(f"{p}: angle, last third of the blocks over first", of("angle", thirds, norm_placement=p), low, high)
          for p, low, high in (("pre", 0, 0.5), ("pre_scaled", 0, 0.5), ("deepnorm", 0.5, 1.2))),
        Claim("pre: largest rise of the loss without one block of the last third",
              of("skip", lambda rise: rise.mean(axis=0)[-(rise.shape[1] // 3):].max(), norm_placement="pre"), -0.02, 0.02),
        Claim("pre: rise of the loss without a block, last third over first", of("skip", thirds, norm_placement="pre"), -0.5, 0.5),
    ], pictures.identity),
    Experiment("warmup", sweep, losses(WARMUPS, rates(*FEW)), [
        *(learns(f"pre, warm-up {w}, lr {rate}", norm_placement="pre", warmup_steps=w, lr=rate) for w in (0, 200) for rate in FEW),
        *(stays(f"post, no warm-up, lr {rate}", norm_placement="post", warmup_steps=0, lr=rate) for rate in FEW[1:]),
        *(Claim(f"post, lr {rate}: what a warm-up of 200 gains", paired(
            {**WARMUPS["post"], "lr": rate}, {**WARMUPS["post, warm-up 200"], "lr": rate}), 0.05, 1) for rate in FEW[:2]),
    ], pictures.by_rate("Warm-up, learning rate and the norm's place", placements("pre", "post"), {
        "no warm-up": {"warmup_steps": 0}, "warm-up 200": {"warmup_steps": 200}})),
    Experiment("deep", sweep, losses(values_of("n_layer", 24, 48, name="L {}"),
                                     placements("post", "pre", "deepnorm", "rezero", "res_post", "mix")), [
        *(stays(f"post at L {layers}", norm_placement="post", n_layer=layers) for layers in (24, 48)),
        *(learns(f"{p} at L 24", norm_placement=p, n_layer=24) for p in ("pre", "deepnorm", "rezero", "res_post")),
        *(learns(f"{p} at L 48", norm_placement=p, n_layer=48) for p in ("pre", "deepnorm")),
    ]),
    Experiment("collapse", measuring(tokens=token_cosines, A=amplification), several(
        grid("cosine of two tokens after the last block, its theory; A", lambda rows, values: "{:.3f}, {:.3f}; {:.3g}".format(
            *rows.measured("tokens", **values)[0, :, -1], *rows.measured("A", **values)), ROOTED, DEPTHS), losses(ROOTED, DEPTHS)), [
        Claim("cosine of two tokens less theory's: the worst layer of all models", lambda f: max(
            float(abs(np.subtract(*row["tokens"])).max()) for row in f.rows), 0, 0.05),
        *(Claim(f"{scale}, {depth}: after the last block", of("tokens", lambda pairs: pairs[0, 0, -1], **ROOTED[scale], **DEPTHS[depth]),
                low, high)
          for scale, depth, low, high in (("branches × 1", "L 6", 0.8, 0.95), ("branches × 1", "L 12", 0.97, 1), (
              "branches × 1", "L 48", 0.99, 1), ("branches × L^-½", "L 6", 0.15, 0.3), ("branches × L^-½", "L 48", 0.15, 0.3))),
        *(stays(f"branches × 1, {depth}", branch_scale="1", **DEPTHS[depth]) for depth in ("L 12", "L 24", "L 48")),
        *(learns(f"branches × L^-½, {depth}", branch_scale="L^-0.5", **own) for depth, own in DEPTHS.items()),
    ], pictures.beside_laws("Cosine of two tokens, post-norm before training", lambda found: [
        (scale, "", {depth: beside_theory(found, "tokens", **own, **layers) for depth, layers in DEPTHS.items()}, 0, False)
        for scale, own in ROOTED.items()])),
    Experiment("prores", sweep, losses(PRORES, values_of("branch_warmup_steps", 0, 3, 10, name="T {}")), [
        *(Claim(f"{p}: with minus without, T 3, by seed", paired({**own, "branch_warmup_steps": 3}, {**own, "branch_warmup_steps": 0}),
                -1, 0, False) for p, own in PRORES.items()),
    ]),
    Experiment("residual", together(rows=sweep, gradient=probing(
        {(p, residual, layers): {"norm_placement": p, "residual": str(residual).lower(), "n_layer": layers} for p in ("pre", "none")
         for residual in (True, False) for layers in (2, 4, 8, 16, 32, 48)}, lambda folder: first_over_last(stream("grad_norm")(folder)),
        lambda law: first_over_last(law["grad"]), config="xiong")), losses(RESIDUALS, values_of("n_layer", 2, 24, name="L {}")), [
        Claim("no norm, no residuals, deepest: log10 of the gradient before block 1",
              lambda f: math.log10(f["gradient"]["none", False, 48][0].mean()), -9, -5),
        Claim("no norm, with residuals: the same", lambda f: math.log10(f["gradient"]["none", True, 48][0].mean()), 9, 13),
        Claim("pre, with residuals, over its law", lambda f: (lambda measured, law: measured.mean() / law)(*f["gradient"]["pre", True, 48]),
              0.7, 1.5),
        *(learns(f"pre, L {layers}, with residuals", residual="true", n_layer=layers) for layers in (2, 24)),
        learns("pre, L 2, without", residual="false", n_layer=2),
        stays("pre, L 24, without", residual="false", n_layer=24),
    ], pictures.residual),
    Experiment("batchnorm", measuring(gap=gap), several(
        grid("evaluation − training", lambda rows, values: spread(rows.measured("gap", **values), "{:+.3f}"), BATCH_NORMS, BATCHES),
        losses(BATCH_NORMS, BATCHES)), [
        Claim(text, less(*(of("gap", np.mean, norm=norm, batch_size=size) for norm in BATCH_NORMS)), low, high)
        for text, size, low, high in (("batch 2: batchnorm's gap minus layernorm's", 2, 0.1, 2), ("batch 32: the same", 32, -0.05, 0.05))
    ]),
    Experiment("rmsnorm", sweep, losses(values_of("norm", "layernorm", "rmsnorm"), against="layernorm"), [
        Claim("rmsnorm minus layernorm, by seed", paired({"norm": "rmsnorm"}, {"norm": "layernorm"}), -0.05, 0.05),
    ]),
    Experiment("bias", sweep, losses(BIASES, against="FFN without biases"), [
        Claim("biased minus bias-free FFN, by seed", paired(BIASES["with"], BIASES["FFN without biases"]), -0.05, 0.05),
    ]),
    Experiment("without", sweep, losses(WITHOUT, rates("0.0003", "0.001", "0.003")), [
        *(Claim(f"L {layers}, lr {rate}: what is lost without norms", paired(
            {**WITHOUT[f"L {layers}, without"], "lr": rate}, {**WITHOUT[f"L {layers}, with norms"], "lr": rate}), low, high)
          for layers, low, high in ((2, -0.1, 0.25), (12, 0.4, 1e4)) for rate in ("0.0003", "0.001", "0.003")),
        Claim("L 12: what norms lose without gain and bias",
              paired(WITHOUT["L 12, norms without gain and bias"], {**WITHOUT["L 12, with norms"], "lr": "0.001"}), -0.1, 0.1),
    ]),
    Experiment("init", sweep, losses(placements("pre", "post"), INITS, "pre"), [
        learns("Xavier, pre", scheme="xavier_normal", norm_placement="pre"),
        stays("Xavier, post", scheme="xavier_normal", norm_placement="post"),
        Claim("GPT-2's, post minus pre: no contrast", paired({"scheme": "gpt2", "norm_placement": "post"},
                                                             {"scheme": "gpt2", "norm_placement": "pre"}), -0.2, 0.2),
    ]),
    Experiment("lr_sensitivity", measuring(first=first_loss), several(
        losses({f"{p}, {name} qk_norm": {**own, **qk} for p, own in RATED.items() for name, qk in QK.items()}, rates(*WIDE)),
        grid("sensitivity to the rate", lambda rows, values: f"{sensitivity(**values)(rows):.3f}", RATED, {
            f"{name} qk_norm": own for name, own in QK.items()})), [
        *(Claim(f"{p}: largest rate that learns", rate_that_learns({**RATED[p], **QK["without"]}, *WIDE), low, high)
          for p, low, high in (("post", 0, 0), *((p, 0.003, 1) for p in ("pre", "sandwich", "res_post", "deepnorm")))),
        Claim("pre: sensitivity without qk_norm less with", less(*(sensitivity(**RATED["pre"], **own) for own in QK.values())), 0.01, 1),
        *(Claim(f"{p}: sensitivity over pre's", over(*(sensitivity(**RATED[name], **QK["without"]) for name in (p, "pre"))), 0, 0.9)
          for p in ("sandwich", "res_post")),
    ], pictures.by_rate("Rate and placement", {f"{name} qk_norm": own for name, own in QK.items()}, RATED)),
    Experiment("qk_norm", sweep, losses(QK, rates(*HIGH), "without"), [
        Claim(f"lr {rate}: with minus without, by seed", paired({**QK["with"], "lr": rate}, {**QK["without"], "lr": rate}), low, high)
        for rate, low, high in (("0.003", -0.03, 0.03), ("0.01", -1, -0.02), ("0.03", -1, -0.05), ("0.1", -1, -0.2))
    ], pictures.by_rate("A norm on queries and keys", {"": {}}, QK)),
    Experiment("sharpness_order", measuring(squares=mean_squares), tables.sharpness_order, [
        *(Claim(f"{p}, {when}: neighbours out of order", of("squares", lambda s, row=row: out_of_order_kinds(
            s[:, row].mean(axis=0)), norm_placement=p), low, high, holds) for p, when, row, low, high, holds in (
                ("pre", "after warm-up", 1, 0, 0, True), ("pre", "step 1", 0, 1, 4, True), ("post", "after warm-up", 1, 1, 4, False))),
        *(Claim(f"pre, after warm-up: {text}", of("squares", lambda s, kinds=kinds: np.divide(*s[:, 1, kinds].mean(axis=0)),
                                                  norm_placement="pre"), low, high, holds)
          for text, kinds, low, high, holds in (("embeddings over q, k", [0, 1], 0, 0.5, False), ("norms over v, o", [4, 3], 2, 1e4, True))),
    ]),
    Experiment("anchor", measuring(radial=radial, logits=curve("logits")), losses(ANCHORS), [
        *(learns(name, **own) for name, own in ANCHORS.items()),
        Claim("with: |cosine| of x_L and its gradient", of("radial", lambda cosines: abs(cosines).max(), final_norm="true"), 0, 0.01),
        Claim("without: cosine of x_L and the negative of its gradient", of("radial", np.mean, final_norm="false"), 0.01, 1),
        Claim("rms of the logits at the end, without over with", over(last_rms("logits", final_norm="false"), last_rms(
            "logits", final_norm="true")), 1, 10),
    ]),
    Experiment("outgrow", measuring(stream=curve("stream")), losses(placements("pre", "sandwich", "peri"), rates("0.001", "0.01")), [
        Claim("pre, lr 0.01: rms of the stream, last step over first", lambda f: tables.grown(f, "pre", "0.01"), 10, 50),
        *(Claim(f"{p}, lr 0.01: the same", lambda f, p=p: tables.grown(f, p, "0.01"), 1.5, 5) for p in ("sandwich", "peri")),
    ], pictures.outgrow),
    Experiment("dyt", sweep, losses(NORMS, values_of("n_layer", 12, 24, name="L {}"), "layernorm"), [
        Claim(f"{norm} minus layernorm at L {layers}, by seed", paired({"norm": norm, "n_layer": layers},
                                                                       {"norm": "layernorm", "n_layer": layers}), 0.02, 0.3)
        for norm in ("dyt", "derf") for layers in (12, 24)
    ]),
    Experiment("muon_norms", sweep, losses(MUON, rates("0.001", "0.004")), [
        Claim("AdamW: derf behind rmsnorm", GAPS["adamw, derf"], 0.02, 1),
        *(Claim(f"{norm}: how much further behind under Muon", less(GAPS[f"muon, {norm}"], GAPS[f"adamw, {norm}"]), low, high, holds)
          for norm, low, high, holds in (("derf", 0.02, 2, False), ("dyt", -1, 0.02, True))),
        Claim("Muon: derf with α 0.3 over derf, behind rmsnorm", over(GAPS["muon, derf, α 0.3"], GAPS["muon, derf"]), -1, 0.7, False),
    ]),
    Experiment("hybrid", sweep, losses(HYBRID, INITS, "pre"), [
        *(Claim(f"Xavier: {name} minus pre, by seed", paired({**HYBRID[name], "scheme": "xavier_normal"}, {
            **HYBRID["pre"], "scheme": "xavier_normal"}), 0.05, 0.5) for name in ("hybrid", "hybrid_star")),
        Claim("GPT-2's: hybrid minus pre, by seed", paired({**HYBRID["hybrid"], "scheme": "gpt2"}, {
            **HYBRID["pre"], "scheme": "gpt2"}), -0.05, 0.05),
    ]),
    Experiment("keel", sweep, losses(DEEP, rates(*SOME)), [
        *(Claim(f"{name}, lr {rate}: learns", final(**DEEP[name], lr=rate), 2.0, 2.9) for name, rate in (
            *((name, "0.001") for name in DEEP), ("keel, L 96", "0.003"), ("pre, L 96", "0.01"))),
        stays("deepnorm, L 96, lr 0.003", **DEEP["deepnorm, L 96"], lr="0.003"),
        stays("keel, L 96, lr 0.01", **DEEP["keel, L 96"], lr="0.01"),
    ], pictures.by_rate("Depth and rate", values_of("n_layer", 24, 48, 96, name="L = {}"), placements("pre", "deepnorm", "keel"))),
    Experiment("amplification", measuring(A=amplification), tables.amplification, [
        Claim("models that do not learn though one of larger A does", lambda f: tables.out_of_order(f, "0.0003", "0.001", "0.003"), 0, 0),
        Claim("lr 0.001: A at which learning ends", lambda f: tables.limit(f, "0.001"), 5, 20),
        Claim("that of lr 0.001 over that of lr 0.003", lambda f: tables.limit(f, "0.001") / tables.limit(f, "0.003"), 2, 5),
        Claim("that of lr 0.0003 over that of lr 0.001", lambda f: tables.limit(f, "0.0003") / tables.limit(f, "0.001"), 1, 5),
    ], pictures.trainability),
    Experiment("depth_rate", sweep, losses({f"{scale}, {depth}": {**one, **other} for scale, one in SCALED.items()
                                            for depth, other in DEPTHS.items()}, rates(*WIDE)), [
        Claim(f"{scale}: what L 48 loses at the rate that is best at L 6", lost_by_rate({**SCALED[scale], "n_layer": 6}, {
            **SCALED[scale], "n_layer": 48}, *WIDE), low, high)
        for scale, low, high in (("branches × 1", 0.05, 1), ("branches × 1/L", 0, 0.03))
    ], pictures.by_rate("Rate and depth", SCALED, DEPTHS)),
    Experiment("depth_curvature", measuring(curvature=curvature), several(*(grid(
        f"largest eigenvalue, {when}", lambda rows, values, row=row: spread(rows.measured("curvature", **values)[:, row], "{:.3g}"), SCALED,
        {name: DEPTHS[name] for name in ("L 6", "L 12", "L 24")}) for row, when in enumerate(("before training", "after")))), [
        Claim(f"branches × 1, {when}: slope of log eigenvalue against log L", curvature_slope(row, **SCALED["branches × 1"]), 0.2, 3, holds)
        for row, when, holds in ((0, "before training", True), (1, "after", False))] + [
        Claim("before training: that less the slope of branches × 1/L", less(*(curvature_slope(0, **own) for own in SCALED.values())), 0.1, 3),
    ]),
    Experiment("equilibrium", measuring(size=over_law), tables.equilibrium, [
        *(Claim(f"lr 0.001, {scheme}: {matrix} over √(lr / 2 wd)",
                of("size", lambda sizes, matrix=matrix: sizes[:, SIZED.index(matrix)].mean(), lr="0.001", scheme=scheme), low, high)
          for scheme in ("xavier_normal", "gpt2") for matrix, low, high in (("ffn.in", 0.85, 1.15), ("ffn.out", 0.85, 1.15), ("head", 2, 20))),
    ]),
    Experiment("bf16", sweep, losses(PRECISIONS, placements(*ROUNDED), "float32"), [
        Claim(f"{p}: bf16 minus float32, by seed", paired({"precision": "bf16", "norm_placement": p},
                                                          {"precision": "fp32", "norm_placement": p}), -0.001, 0.001)
        for p in ROUNDED[:-1]  # post learns nothing here
    ]),
]
