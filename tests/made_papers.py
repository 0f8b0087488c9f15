"""A stand-in for the program in the tests of configs/papers: sweeps and probes of the real grids, with made-up numbers
in files of the real format. A number is a function of a run's config and seed, so that runs taken for one another give
other results."""

import contextlib
import csv
import functools
import itertools
import json
import re
import zlib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from cli import write_run
import measure  # in scripts, which cli.py puts on the path
from lib import grid, mean_field, papers_run, safetensors_io
from lib.keys import PLACEMENTS
from lib.mean_field import resolved as ask_resolved

KINDS = ("attn_norm.weight", "attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.out.weight", "ffn.in.weight",
         "ffn.out.weight", "embed.token.weight", "final_norm.weight", "head.weight")  # of a block; of the model


def share_of(*values):
    """A number from 0 to 1 that these values decide."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode()) / 2**32


def weight_of(model):
    """The weight of a branch."""
    scale = model.get("branch_scale", 1.0)
    base, _, power = str(scale).partition("^")
    return model["n_layer"] ** float(power or -1) if base in ("L", "1/L") else float(scale)


def law(config):
    """The made-up theory, with the keys of lib.mean_field.predicted."""
    model = config["model"]
    layers = np.arange(model["n_layer"] + 1)
    placement = model["norm_placement"]
    step = 0.2 + share_of(model.get("norm"), placement if isinstance(placement, str) else str(placement),
                          model["activation"], model["residual"])
    mean_squares = 1 + step * layers * weight_of(model) ** 2
    amplification = model["n_layer"] * weight_of(model) ** 2 * (1 + share_of(placement))
    return {
        "rms": np.sqrt(mean_squares), "grad": 1e-3 * np.sqrt(mean_squares[-1] / mean_squares),
        "share": mean_squares ** -0.5, "tokens": 1 - np.exp(-amplification / 8 * layers / layers[-1]),
        "entropy": 1 + step / layers[1:], "amplification": amplification}


@functools.cache
def resolved_once(file, settings):
    return ask_resolved(file, settings)


def resolved(file, settings=()):
    """The config as the program resolves it, which it is asked for once."""
    return resolved_once(file, tuple(settings))


def predicted(folder, narrow=False):
    return law(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))


def predict(config, narrow=False):
    expected = law(config)
    return SimpleNamespace(layers=[{"token_cosine": value} for value in expected["tokens"]],
                           amplification=expected["amplification"])


def curvature(config, trained):
    """The made-up Hessian's eigenvalue; training flattens it."""
    return (2 - trained) * config["model"]["n_layer"] * weight_of(config["model"]) * (1 + 0.1 * config["train"]["seed"])


def dump(model, weights):
    """In the place of measure.Model.dump: gradients of a loss whose Hessian is a multiple of the identity."""
    return {
        f"grad.{name}": curvature(model.config, "probed" not in model.path) * array for name, array in weights.items()}


def freeze(model):
    """In the place of measure.freeze: norm k of the forward pass, counted from 1, has a rise of k / 100; all, 1."""
    row = PLACEMENTS[model.config["model"]["norm_placement"]]
    count = 2 * model.config["model"]["n_layer"] * sum(row[name] for name in ("norm_in", "norm_branch", "norm_out"))
    return {"norms": {k: {"rise": (k + 1) / 100} for k in range(count + row["final_norm"])}, "all": 1.0}


def write_csv(path, header, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def write_logs(folder, config, steps):
    """layers.csv, params.csv and heads.csv of these steps: at the first what the law expects, 1% apart by seed, growing
    from then on."""
    model, train = config["model"], config["train"]
    expected, depth = law(config), model["n_layer"]
    streams, params, heads = [], [], []
    for step in steps:
        factor = (1 + 0.01 * (-1) ** train["seed"]) * (1 + step * train["lr"])
        for layer in range(depth + 1):
            gradient = expected["grad"][layer] * factor
            streams.append([
                step, layer, "stream", expected["rms"][layer] * factor, gradient, gradient * model["d_model"],
                expected["tokens"][layer]])
        streams.append([step, depth + 1, "logits", 2 * factor + share_of(model), 1, 1, ""])
        scale = factor / depth**0.4
        sizes = {kind: scale * (1 + share_of(kind, step > 1, model["norm_placement"])) for kind in KINDS}
        for block, kind in [*itertools.product(range(1, depth + 1), KINDS[:-3]), *((0, kind) for kind in KINDS[-3:])]:
            gradient = sizes[kind] * (1 + 0.1 / max(block, 1))
            name = f"blocks.{block - 1}.{kind}" if block else kind
            params.append([step, block, name, 16, sizes[kind], gradient, gradient])
        heads += [[step, layer, head, expected["entropy"][layer - 1] * factor * (0.99 + 0.02 * head)]
                  for layer in range(1, depth + 1) for head in (0, 1)]
    write_csv(folder / "layers.csv", ("step", "layer", "site", "rms", "grad_rms", "grad_norm", "token_cosine"), streams)
    write_csv(folder / "params.csv", ("step", "layer", "param", "numel", "rms", "grad_norm", "grad_norm_batch"), params)
    write_csv(folder / "heads.csv", ("step", "layer", "head", "entropy"), heads)


def write_tensors(path, config):
    """An exchange file of two tokens: streams that turn by an angle from block to block, smaller in deep blocks, and
    gradients."""
    depth, seed = config["model"]["n_layer"], config["train"]["seed"]
    turned = np.cumsum([
        0, *((1 + share_of(config["model"]["norm_placement"])) / (2 + block) for block in range(depth))])
    expected = law(config)
    tensors = {}
    for layer, (angle, cosine) in enumerate(zip(turned, expected["tokens"])):
        first = np.array([np.cos(angle), np.sin(angle), 0.0])
        across = np.array([-np.sin(angle), np.cos(angle), 0.0]) * 0.6 + np.array([0, 0, 0.8])
        second = cosine * first + np.sqrt(1 - cosine**2) * across
        tensors[f"act.{layer}.stream"] = (1 + 0.01 * seed) * np.array([[first, second]], np.float32)
    tensors[f"act_grad.{depth}.stream"] = np.array(
        [[-0.1 * share_of(config["model"]) * first, np.cross(first, second)]], np.float32)
    for name in (f"blocks.{block}.{part}.out.weight" for block in range(depth) for part in ("attn", "ffn")):
        tensors[name] = tensors[f"grad.{name}"] = np.ones((1, 1), np.float32)
    for name in ("head.weight", *(f"blocks.{block}.ffn.in.weight" for block in range(depth))):
        tensors[name] = np.array([[3, 4 * seed]], np.float32)
    safetensors_io.write(path, tensors, {"config": json.dumps(config)})


class MadeProgram:
    """Answers what scripts/lib/papers_run.py asks of the program and of sweep.py. `configs`: the resolved configs of
    each sweep's runs, by the name of its file."""

    def __init__(self):
        self.configs = {}

    def output_of(self, command, show=False):
        words = [str(word) for word in command]
        options = {key: value for key, value in zip(words, words[1:]) if key in ("--out", "--seeds", "--dump")}
        settings = [value for key, value in zip(words, words[1:]) if key == "--set"]
        if words[1].endswith("sweep.py"):
            return self.sweep(Path(words[2]), settings, Path(options["--out"]))
        if words[1] == "probe":
            return self.probe(Path(words[2]), settings, options)
        return self.evaluate(Path(words[2]))

    def sweep(self, file, settings, out):
        """As sweep.py: folders of runs and summary.csv."""
        sweep = grid.load_sweep(file, settings)
        grid.resolve(sweep)
        self.configs[file.stem] = [run.config for run in sweep.runs]
        rows = []
        for run in sweep.runs:
            run.folder = out / run.name
            loss = default_loss(run)
            if not run.folder.exists():
                self.train(run, loss)
            rows.append([run.name, *(grid.as_cell(run.value(key)) for key in sweep.columns), "done", loss])
        write_csv(out / "summary.csv", ["name", *sweep.columns, "status", "final_val_loss"], rows)
        return ""

    def train(self, run, loss):
        """The folder of one run of a sweep."""
        write_run(run.folder, run.config,
                  {"status": "done", "final_val_loss": loss, "corpus_hash": "0", "steps": 60})
        write_logs(run.folder, run.config, (1, 2, run.value("train.steps") // 2 + 1, run.value("train.steps")))
        write_tensors(run.folder / "model.safetensors", run.config)
        below = 0.1 * share_of(run.config["model"], run.value("train.batch_size"))
        losses = [[step, 4 if step == 1 else loss - below * (1 + 1 / step), loss] for step in range(1, 61)]
        write_csv(run.folder / "metrics.csv", ("step", "train_loss", "val_loss"), losses)

    def probe(self, file, settings, options):
        """As `normscope probe`."""
        config = resolved(file, settings)
        if "--dump" in options:
            write_tensors(options["--dump"], config)
            return ""
        for seed in range(1, int(options["--seeds"]) + 1):
            folder = Path(options["--out"], f"seed-{seed}")
            seeded = {**config, "train": {**config["train"], "seed": seed}}
            write_run(folder, seeded)
            write_logs(folder, seeded, (0,))
        return ""

    def evaluate(self, file):
        """As `normscope eval`: without block b the loss is higher by 0.1 / (1 + b)."""
        tensors, _ = safetensors_io.read(file)
        blocks = [
            int(name.split(".")[1]) for name, array in tensors.items()
            if re.match("blocks.*out.weight", name) and not array.any()]
        return f"unigram  3.08\nmodel    {2.5 + 0.1 / (1 + blocks[0]) if blocks else 2.5}\n"


@contextlib.contextmanager
def made_program():
    """Puts a MadeProgram in the place of the program and of the theory."""
    made = MadeProgram()
    with mock.patch.object(papers_run, "output_of", made.output_of), mock.patch.object(measure.Model, "dump", dump), \
            mock.patch.object(measure, "freeze", freeze), \
            mock.patch.multiple(mean_field, resolved=resolved, predict=predict, predicted=predicted):
        yield made


def default_loss(run):
    """From 2.3 to 3.2 by config; seeds are 0.01 apart."""
    settings = {key: value for key, value in run.settings.items() if key != "train.seed"}
    return 2.3 + 0.9 * share_of(settings) + 0.01 * run.value("train.seed") * (
        1 + share_of(settings, run.value("train.seed")))
