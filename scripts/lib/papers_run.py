"""Runs the experiments of configs/papers, and reads from their run folders what papers.py makes claims about.

Each `run_*` takes (config file, out folder, quick) and gives what it measured. What an earlier call finished is not done
again. Quick: tiny models, a few steps, fewer seeds; same code, but the numbers mean nothing.
"""

import csv
import functools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from lib import safetensors_io, theory
from lib.comparison import comparison
from lib.runs import Run, np, program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(program())
CORPUS = ROOT / "data" / "austen.txt"
QUICK_DEPTHS = {2: 1, 4: 2, 6: 3, 12: 4, 24: 5, 48: 6, 96: 7}  # of a sweep's quick form: what stands for a depth
TINY = {"model": {"n_layer": QUICK_DEPTHS[12], "n_head": 2, "d_model": 16, "d_ff": 16, "context": 8},
        "train": {"steps": 4, "batch_size": 2}, "eval": {"every": 2, "batches": 1}, "log": {"every": 1, "layers_every": 2}}
TINY_PROBE = {"model.d_model": 16, "model.d_ff": 16, "train.batch_size": 4}
predicted = functools.partial(theory.predicted, narrow=True)


def normscope(*arguments, **environment):
    """The program's output."""
    return output_of([PROGRAM, *map(str, arguments)], **environment)


def output_of(command, show=False, **environment):
    """The output of a command. `show`: to the terminal instead, if there is one to follow it on."""
    show = show and sys.stdout.isatty()
    done = subprocess.run(command, env={**os.environ, **environment}, text=True, check=False,
                          stdout=None if show else subprocess.PIPE, stderr=None if show else subprocess.PIPE)
    if done.returncode == 130:
        sys.exit(130)
    if done.returncode != 0:
        print(done.stderr or "", end="", file=sys.stderr)
        sys.exit(f"[reproduce] `{' '.join(command)}` failed; its message is above")
    return done.stdout


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---- training -------------------------------------------------------------------------------------------------


class Rows:
    """The runs of a sweep: a dict each of its summary's row under the last parts of the keys, with its `folder`."""

    def __init__(self, rows):
        self.rows = rows

    def matching(self, **values):
        """The rows that have these values, in the order of their seeds."""
        return [row for row in self.rows if all(row[key] == str(value) for key, value in values.items())]

    def where(self, **values):
        """The same; there must be some."""
        found = self.matching(**values)
        if not found:
            sys.exit(f"[reproduce] no run with {values}; the sweep file has changed?")
        return found

    def losses(self, **values):
        """Their final validation losses. A run that diverged has learnt nothing: infinite."""
        return [float(row["final_val_loss"]) if row["status"] == "done" else math.inf for row in self.where(**values)]

    def paired(self, of, base):
        """What compare.py says of the final losses of the runs `of` beside those of `base`, seed by seed: `mean` of the
        differences and `difference` in words. Two seeds at least."""
        runs = [Run(row["folder"]) for values in (base, of) for row in self.where(**values)]
        said = comparison(runs)["paired"]
        return said[0] if said else {"mean": math.nan, "difference": "diverged"}


def sweep(config, out, quick):
    """Rows of a sweep's runs. No claim reads a validation loss but the last, so others are not computed."""
    file = tiny_sweep(config, out) if quick else config
    output_of([sys.executable, str(ROOT / "scripts" / "sweep.py"), str(file), "--set", "eval.every=0", "--out", str(out), "--jobs",
               str(len(os.sched_getaffinity(0)))], show=True)
    rows = []
    for row in read_csv(out / "summary.csv"):
        values = {key.rpartition(".")[2]: value for key, value in row.items()}
        if quick and "n_layer" in values:
            values["n_layer"] = next(str(depth) for depth, quick_one in QUICK_DEPTHS.items() if str(quick_one) == values["n_layer"])
        rows.append({**values, "folder": out / row["name"]})
    return Rows(rows)


def tiny_text(folder):
    """The beginning of the text as a file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    text.write_text(CORPUS.read_text(encoding="utf-8")[:4000], encoding="utf-8")
    return text


def tiny_sweep(config, out):
    """The sweep with a base of the same kind, but tiny: same grid, but what it holds fixed and depths, 4 steps, two seeds at
    most. Its file."""
    spec = json.loads(re.sub(r"(?m)^\s*//.*$", "", config.read_text(encoding="utf-8")))
    base = {"extends": str((config.parent / spec["base"]).resolve()), **TINY, "data": {"path": str(tiny_text(out))}}
    (out / "tiny.json").write_text(json.dumps(base), encoding="utf-8")
    spec["base"] = str(out / "tiny.json")
    spec["seeds"] = spec.get("seeds", [1])[:2]
    for key, values in spec.get("grid", {}).items():
        section, _, name = key.partition(".")
        if key == "model.n_layer":
            spec["grid"][key] = [QUICK_DEPTHS[layers] for layers in values]
        elif len(values) == 1 and name in TINY.get(section, {}):
            spec["grid"][key] = [TINY[section][name]]
    for case in spec.get("cases", []):
        case["set"]["train.steps"] = TINY["train"]["steps"]
        if layers := case["set"].get("model.n_layer"):
            case["set"]["model.n_layer"] = QUICK_DEPTHS[layers]
    file = out / config.name
    file.write_text(json.dumps(spec), encoding="utf-8")
    return file


# ---- probing --------------------------------------------------------------------------------------------------


def probe(config, folder, seeds, quick, settings):
    """Folders of a probe's seeds; `settings`: {key: value} over the config. What the same command left there is kept."""
    if quick:
        settings = {**TINY_PROBE, "data.path": tiny_text(folder.parent), **settings}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = ["probe", config, *sets, "--seeds", seeds, "--out", folder]
    noted = folder / "command.txt"  # written when it is done
    note = " ".join(map(str, command)) + "\n"
    if not noted.exists() or noted.read_text(encoding="utf-8") != note:
        normscope(*command, "--overwrite")
        noted.write_text(note, encoding="utf-8")
    return [folder / f"seed-{seed}" for seed in range(1, seeds + 1)]


def stream(folder, column):
    """A column of layers.csv for the residual stream, an array (layers 0..L)."""
    return np.array([float(row[column]) for row in read_csv(folder / "layers.csv") if row["site"] == "stream"])


def run_xiong(config, out, quick):
    """{(placement, L): |dW2| of each block, an array (seeds, L)}."""
    found = {}
    for placement in ("pre", "post"):
        for layers in (6, 10, 14) if quick else (6, 8, 10, 12, 14, 24, 48):
            folders = probe(config, out / f"{placement}-{layers}", 2 if quick else 16, quick,
                            {"model.norm_placement": placement, "model.n_layer": layers})
            found[placement, layers] = np.array([
                [float(row["grad_norm_batch"]) for row in read_csv(folder / "params.csv")
                 if row["param"].endswith(".ffn.out.weight")] for folder in folders])
    return found


def run_growth(config, out, quick):
    """{placement: (mean square of the stream as an array (seeds, layers 0..L), its law at each layer)}."""
    found = {}
    for placement in ("pre", "pre_scaled", "post", "sandwich", "peri"):
        folders = probe(config, out / placement, 2 if quick else 16, quick, {"model.norm_placement": placement})
        found[placement] = (np.array([stream(folder, "rms")**2 for folder in folders]), predicted(folders[0])["rms"]**2)
    return found


def run_residual(config, out, quick):
    """`gradient`: {(placement, residual, L): |dx| before the first block over that after the last, one a seed};
    `law`: the same by theory; `rows`: of the sweep."""
    gradient, law = {}, {}
    for placement in ("pre", "none"):
        for residual in (True, False):
            for layers in (2, 6) if quick else (2, 4, 8, 16, 32, 48):
                key = placement, residual, layers
                folders = probe(config.with_name("xiong.json"), out / f"{placement}-{residual}-{layers}", 2 if quick else 8,
                                quick, {"model.norm_placement": placement, "model.residual": str(residual).lower(),
                                        "model.n_layer": layers})
                norms = [stream(folder, "grad_norm") for folder in folders]
                gradient[key] = np.array([norm[0] / norm[-1] for norm in norms])
                expected = predicted(folders[0])["grad"]
                law[key] = expected[0] / expected[-1]
    return {"gradient": gradient, "law": law, "rows": sweep(config, out / "trained", quick)}


def run_dyt_growth(config, out, quick):
    """{norm: {L: (|dx_0| over |dx_L|, one a seed; its law)}}."""
    found = {}
    for norm in ("layernorm", "dyt"):
        for layers in (2, 6) if quick else (6, 12, 24, 48, 96):
            folders = probe(config, out / f"{norm}-{layers}", 2 if quick else 8, quick, {"model.norm": norm, "model.n_layer": layers})
            norms, law = [stream(folder, "grad_rms") for folder in folders], predicted(folders[0])["grad"]
            found.setdefault(norm, {})[layers] = np.array([dx[0] / dx[-1] for dx in norms]), law[0] / law[-1]
    return found


KEPT = "pre", "post", "deepnorm", "keel", "sandwich", "res_post", "hybrid"
ATTENTION = {**{p: {"norm_placement": p} for p in ("pre", "post", "sandwich", "res_post")}, "pre, QK norm": {"qk_norm": "true"}}


def run_laws(config, out, quick):
    """Measured by seeds, and the law. `kept`: {placement: rms of x_l times that of its gradient, (seeds, layers 0..L)}; `share`:
    {placement: (cos(x_0, x_l), the law)}; `activations`: {activation: (|dx_l| over |dx_L| under post, L 24, the law)};
    `entropy`: {variant: (mean over the heads of the entropy of attention by block, T 64, the law)}."""
    found = {"kept": {}, "share": {}, "activations": {}, "entropy": {}}
    seeds = 2 if quick else 8
    for p in KEPT:
        folders = probe(config, out / p, seeds, quick, {"model.norm_placement": p})
        found["kept"][p] = np.array([stream(folder, "rms") * stream(folder, "grad_rms") for folder in folders])
        streams = [unit_streams(folder) for folder in folders]
        found["share"][p] = np.array([[(x[0] * x_l).sum(-1).mean() for x_l in x] for x in streams]), predicted(folders[0])["share"]
    for activation in ("relu", "gelu", "silu", "swiglu"):
        folders = probe(config, out / activation, seeds, quick, {"model.norm_placement": "post", "model.activation": activation,
                                                                 "model.n_layer": QUICK_DEPTHS[24] if quick else 24})
        grads, law = [stream(folder, "grad_rms") for folder in folders], predicted(folders[0])["grad"]
        found["activations"][activation] = np.array([dx / dx[-1] for dx in grads]), law / law[-1]
    for name, settings in ATTENTION.items():
        folders = probe(config.with_name("theory.json"), out / re.sub(r"\W+", "-", name + " attention"), seeds, quick,
                        {f"model.{key}": value for key, value in settings.items()})
        found["entropy"][name] = np.array([mean_entropy(folder) for folder in folders]), predicted(folders[0])["entropy"]
    return found


def mean_entropy(folder):
    """Of attention's weights, nats, mean over the heads: an array (layers 1..L)."""
    rows = read_csv(folder / "heads.csv")
    return [np.mean([float(row["entropy"]) for row in rows if row["layer"] == layer])
            for layer in dict.fromkeys(row["layer"] for row in rows)]


THEORY = {**{p: {"norm_placement": p} for p in ("pre", "post", "sandwich", "res_post", "deepnorm", "keel", "hybrid", "subln")},
          "post, SwiGLU, L 24": {"norm_placement": "post", "activation": "swiglu", "n_layer": 24},
          "pre, RoPE, QK norm": {"position": "rope", "qk_norm": "true"}, "pre, DyT": {"norm": "dyt"},
          "res_post, DyT": {"norm_placement": "res_post", "norm": "dyt"},
          "post, DyT": {"norm_placement": "post", "norm": "dyt"},
          "pre, GPT-2's init, tied": {"init.scheme": "gpt2", "init.embed_std": 0.02, "tie_embeddings": "true"}}


def run_theory(config, out, quick):
    """{variant: {"rms", "grad": (measured, an array (seeds, layers 0..L), predicted, layers 0..L)}}."""
    found = {}
    for name, settings in THEORY.items():
        folders = probe(config, out / re.sub(r"\W+", "-", name), 2 if quick else 8, quick,
                        {f"model.{key}": value for key, value in settings.items()})
        expected = predicted(folders[0])
        found[name] = {"rms": (np.array([stream(folder, "rms") for folder in folders]), expected["rms"]),
                       "grad": (np.array([stream(folder, "grad_rms") for folder in folders]), expected["grad"])}
    return found


# ---- measuring what was trained ---------------------------------------------------------------------------------


def run_identity(config, out, quick):
    """`rows`: of the sweep; `angle`: {placement: degrees between what a block reads and what it gives, mean over the
    tokens of a batch, an array (seeds, L)}; `skip`: {placement: what the loss rises by without the block}."""
    rows = sweep(config, out / "trained", quick)
    found = {"rows": rows, "angle": {}, "skip": {}}
    for row in rows.rows:
        found["angle"].setdefault(row["norm_placement"], []).append(angles(row["folder"]))
        found["skip"].setdefault(row["norm_placement"], []).append(losses_without_blocks(row["folder"]))
    return {**found, **{kind: {p: np.array(v) for p, v in found[kind].items()} for kind in ("angle", "skip")}}


def unit_streams(folder, *options):
    """The stream of a probe of a run's config, scaled to length 1: arrays (B, T, C) of layers 0..L."""
    dump = folder / "probed.safetensors"
    normscope("probe", folder / "config.json", *options, "--dump", dump, "--out", folder / "probe", "--overwrite")
    tensors, _ = safetensors_io.read(dump)
    dump.unlink()
    depth = sum(name.endswith(".ffn_out") and name.startswith("act.") for name in tensors)
    streams = [tensors[f"act.{layer}.stream"].astype(float) for layer in range(depth + 1)]
    return [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in streams]


def angles(folder):
    """Degrees between a block's input and output, a number a block."""
    unit = unit_streams(folder, "--from", folder / "model.safetensors")
    return [np.degrees(np.arccos(np.clip((a * b).sum(-1), -1, 1)).mean()) for a, b in zip(unit, unit[1:])]


def losses_without_blocks(folder):
    """By how much the loss on held-out text rises if a block adds nothing, the matrices that write to the stream being zeros;
    a number a block."""
    noted = folder / "without_blocks.json"  # kept for the next call
    if not noted.exists():
        tensors, metadata = safetensors_io.read(folder / "model.safetensors")
        metadata.pop("checksum", None)
        blocks = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
        lesion, losses = folder / "without_block.safetensors", []
        for block in [None, *range(blocks)]:
            zeroed = {f"blocks.{block}.{part}.out.weight" for part in ("attn", "ffn")}
            safetensors_io.write(lesion, {name: 0 * w if name in zeroed else w for name, w in tensors.items()}, metadata)
            losses.append(float(re.search(r"^model +(\S+)", normscope("eval", lesion), re.MULTILINE)[1]))
        lesion.unlink()
        noted.write_text(json.dumps(losses), encoding="utf-8")
    whole, *without = json.loads(noted.read_text(encoding="utf-8"))
    return [loss - whole for loss in without]


def run_batchnorm(config, out, quick):
    """{(norm, batch size): what evaluation's loss has over training's, mean of the last 50 steps; a number a seed}."""
    rows, gaps = sweep(config, out, quick), {}
    for row in rows.rows:
        last = [float(r["train_loss"]) for r in read_csv(row["folder"] / "metrics.csv")][-50:]
        gaps.setdefault((row["norm"], int(row["batch_size"])), []).append(float(row["final_val_loss"]) - sum(last) / len(last))
    return {"rows": rows, "gap": gaps}


def site_curves(folder, file, key, names, column="rms"):
    """(logged steps, array (names, steps)) of a column of layers.csv or params.csv: rows whose `key` is one of the names."""
    rows = [row for row in read_csv(folder / file) if key(row) in names]
    steps = list(dict.fromkeys(int(row["step"]) for row in rows))
    return steps, np.array([[float(row[column]) for row in rows if key(row) == name] for name in names])


def run_outgrow(config, out, quick):
    """`rows`: of the sweep; `stream`: {(placement, rate): (steps, rms of the stream after the last block, an array (seeds, steps))}."""
    rows, streams = sweep(config, out, quick), {}
    for row in rows.rows:
        last = json.loads((row["folder"] / "config.json").read_text(encoding="utf-8"))["model"]["n_layer"]
        steps, curve = site_curves(row["folder"], "layers.csv", lambda r: (r["site"], r["layer"]), [("stream", str(last))])
        streams.setdefault((row["norm_placement"], row["lr"]), (steps, []))[1].append(curve[0])
    return {"rows": rows, "stream": {key: (steps, np.array(curves)) for key, (steps, curves) in streams.items()}}


SIZED = ("ffn.in", "ffn.out", "attn.out", "head")  # matrices whose size is followed; that of the head matters to the loss


def run_equilibrium(config, out, quick):
    """{(rate, scheme): {"law": rms, matrix: (steps, its rms at each, mean over the blocks)}}."""
    found = {}
    for row in sweep(config, out, quick).rows:
        sizes = found[row["lr"], row["scheme"]] = {"law": math.sqrt(float(row["lr"]) / 2 / float(row["weight_decay"]))}
        params = {r["param"] for r in read_csv(row["folder"] / "params.csv")}
        for matrix in SIZED:
            steps, curves = site_curves(row["folder"], "params.csv", lambda r: r["param"],
                                        [name for name in params if name.endswith(matrix + ".weight")])
            sizes[matrix] = steps, curves.mean(axis=0)
    return found


def run_amplification(config, out, quick):
    """`rows`: of the sweep; `amplification`: {(blocks, scale of the branches): A by theory}."""
    rows = sweep(config, out, quick)
    return {"rows": rows, "amplification": {(row["n_layer"], row["branch_scale"]): predicted(row["folder"])["amplification"]
                                            for row in rows.rows if row["lr"] == rows.rows[0]["lr"]}}
