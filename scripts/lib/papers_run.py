"""Runs the experiments of configs/papers, and reads from their run folders what papers.py makes claims about.

The `run` of an experiment takes (config file, out folder, quick) and gives what it found: `sweep`, or a `probing`, `measuring` or
`together` of measures. What an earlier call finished is not done again. Quick: tiny models, a few steps, fewer seeds; same code, but
the numbers mean nothing.
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

from lib import mean_field, safetensors_io
from lib.comparison import comparison
from lib.runs import Run, np, program
from measure import Model, sharpness, token_cosine, unit

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(program())
CORPUS = ROOT / "data" / "austen.txt"
QUICK_DEPTHS = {2: 1, 4: 2, 6: 3, 12: 4, 24: 5, 48: 6, 96: 7}  # of a sweep's quick form: what stands for a depth
TINY = {"model": {"n_layer": QUICK_DEPTHS[12], "n_head": 2, "d_model": 16, "d_ff": 16, "context": 8},
        "train": {"steps": 4, "batch_size": 2}, "eval": {"every": 2, "batches": 1}, "log": {"every": 1, "layers_every": 2}}
TINY_PROBE = {"model.d_model": 16, "model.d_ff": 16, "train.batch_size": 4}
predicted = functools.partial(mean_field.predicted, narrow=True)


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

    def measured(self, name, **values):
        """What `measuring` has added to them under this name, an array, a row a run."""
        return np.array([row[name] for row in self.where(**values)])

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


def probing(variants, measure, law=None, seeds=8, config=None):
    """The `run` of an experiment that probes variants {name: {key of the model: value}}. It finds {name: (what `measure` gives of each
    seed's folder, an array; what `law` gives of the prediction)}. `config`: the stem of another file than the experiment's own."""
    def run(file, out, quick):
        file, found = file.with_stem(config or file.stem), {}
        for name, settings in variants.items():
            folders = probe(file, out / re.sub(r"\W+", "-", f"{file.stem} {name}"), 2 if quick else seeds, quick,
                            {f"model.{key}": value for key, value in settings.items()})
            found[name] = np.array([measure(folder) for folder in folders]), law and law(predicted(folders[0]))
        return found
    return run


def together(**parts):
    """The `run` of an experiment of several parts: {name of a part: what it found}."""
    return lambda *arguments: {name: run(*arguments) for name, run in parts.items()}


def stream(column):
    """A measure: a column of layers.csv for the residual stream, an array (layers 0..L)."""
    return lambda folder: np.array([float(row[column]) for row in read_csv(folder / "layers.csv") if row["site"] == "stream"])


def over_last(values):
    return values / values[-1]


def first_over_last(values):
    return values[0] / values[-1]


def last_gradients(folder):
    """|dW2| of each block: the FFN's second matrix."""
    return [float(row["grad_norm_batch"]) for row in read_csv(folder / "params.csv") if row["param"].endswith(".ffn.out.weight")]


def mean_entropy(folder):
    """Of attention's weights, nats, mean over the heads: an array (layers 1..L)."""
    rows = read_csv(folder / "heads.csv")
    return [np.mean([float(row["entropy"]) for row in rows if row["layer"] == layer])
            for layer in dict.fromkeys(row["layer"] for row in rows)]


def fresh(folder):
    """The model of a run's or a probe's config before training, with every tensor of its first batch."""
    dump = folder / "probed.safetensors"
    normscope("probe", folder / "config.json", "--dump", dump, "--out", folder / "probe", "--overwrite")
    model = Model(dump)
    dump.unlink()
    return model


def shares(folder):
    """cos(x_0, x_l), mean over the tokens of a batch, of layers 0..L."""
    streams = [unit(x) for x in fresh(folder).streams]
    return [(streams[0] * x).sum(-1).mean() for x in streams]


# ---- measuring what was trained ---------------------------------------------------------------------------------


def measuring(**measures):
    """The `run` of an experiment that trains a sweep and then measures each run: to its row is added {name: what the measure gives of
    it as a Run}, a number or lists of them, kept in its folder for the next call."""
    def run(config, out, quick):
        found = sweep(config, out, quick)
        for row in found.rows:
            for name, measure in measures.items():
                noted = row["folder"] / f"measured_{name}.json"
                if not noted.exists():
                    noted.write_text(json.dumps(np.asarray(measure(Run(row["folder"])), float).tolist()), encoding="utf-8")
                row[name] = json.loads(noted.read_text(encoding="utf-8"))
        return found
    return run


def angles(run):
    """Degrees between a block's input and output, mean over the tokens of a batch; a number a block."""
    streams = [unit(x) for x in Model(run.folder).streams]
    return [np.degrees(np.arccos(np.clip((a * b).sum(-1), -1, 1)).mean()) for a, b in zip(streams, streams[1:])]


def losses_without_blocks(run):
    """By how much the loss on held-out text rises if a block adds nothing, the matrices that write to the stream being zeros;
    a number a block."""
    tensors, metadata = safetensors_io.read(run.folder / "model.safetensors")
    metadata.pop("checksum", None)
    lesion, losses = run.folder / "without_block.safetensors", []
    for block in [None, *range(run.value("model.n_layer"))]:
        zeroed = {f"blocks.{block}.{part}.out.weight" for part in ("attn", "ffn")}
        safetensors_io.write(lesion, {name: 0 * w if name in zeroed else w for name, w in tensors.items()}, metadata)
        losses.append(float(re.search(r"^model +(\S+)", normscope("eval", lesion), re.MULTILINE)[1]))
    lesion.unlink()
    return [loss - losses[0] for loss in losses[1:]]


def gap(run):
    """What evaluation's loss has over training's, mean of the last 50 steps."""
    last = [float(row["train_loss"]) for row in read_csv(run.folder / "metrics.csv")][-50:]
    return run.summary["final_val_loss"] - sum(last) / len(last)


def curve(site):
    """A measure: [logged steps, rms of the site at each]; of the stream, after the last block."""
    def measure(run):
        rows = [row for row in read_csv(run.folder / "layers.csv") if row["site"] == site]
        return [[float(row[column]) for row in rows if row["layer"] == rows[-1]["layer"]] for column in ("step", "rms")]
    return measure


SIZED = ("ffn.in", "ffn.out", "attn.out", "head")  # matrices whose size is followed; that of the head matters to the loss


def over_law(run):
    """The rms of the matrices SIZED at the last step, mean over the blocks, over sqrt(lr / 2 wd)."""
    rows = read_csv(run.folder / "params.csv")
    law = math.sqrt(run.value("train.lr") / 2 / run.value("train.weight_decay"))
    return [np.mean([float(row["rms"]) for row in rows if row["step"] == rows[-1]["step"] and row["param"].endswith(matrix + ".weight")])
            / law for matrix in SIZED]


def amplification(run):
    """By theory."""
    return predicted(run.folder)["amplification"]


def by_theory(config, depths, scales):
    """Of a config with other depths and branch scales, before training: (cosine of two tokens after the last block, amplification),
    arrays (scales, depths)."""
    config = mean_field.resolved(config)

    def model(layers, scale):
        return mean_field.predict({**config, "model": {**config["model"], "n_layer": layers, "branch_scale": scale}}, narrow=True)

    models = [[model(layers, scale) for layers in depths] for scale in scales]
    return (np.array([[one.layers[-1]["token_cosine"] for one in row] for row in models]),
            np.array([[one.amplification for one in row] for row in models]))


def first_loss(run):
    """Of training, at step 1."""
    return float(read_csv(run.folder / "metrics.csv")[0]["train_loss"])


def token_cosines(run):
    """Of two tokens of a sequence, before training: [measured, by theory] at layers 0..L."""
    return [token_cosine(fresh(run.folder)), predicted(run.folder)["tokens"]]


KINDS = {"embeddings": r"embed\.", "q, k": r"attn\.[qk]\.", "FFN": r"ffn\.", "v, o": r"attn\.(v|out)\.", "norms": r"_norm\."}  # of parameters


def mean_squares(run):
    """Mean square of the gradient by kind of parameter: [at step 1, mean over the logged steps of the last half]."""
    rows = read_csv(run.folder / "params.csv")
    half = int(rows[-1]["step"]) / 2

    def by_kind(shown):
        return [sum(float(row["grad_norm"])**2 for row in of_kind) / sum(int(row["numel"]) for row in of_kind)
                for of_kind in ([row for row in shown if re.search(kind, row["param"])] for kind in KINDS.values())]

    return [by_kind([row for row in rows if row["step"] == "1"]), by_kind([row for row in rows if int(row["step"]) > half])]


def radial(run):
    """Cosine of the last block's output and its gradient's negative: what a step gains by growing it; mean over the tokens of a batch."""
    model = Model(run.folder)
    dx = model.tensors[f"act_grad.{run.value('model.n_layer')}.stream"].astype(float)
    return -(unit(model.streams[-1]) * unit(dx)).sum(-1).mean()


def curvature(run):
    """The largest eigenvalue of the Hessian on a batch: [before training, after]."""
    return [sharpness(fresh(run.folder)), sharpness(Model(run.folder))]
