"""Runs the experiments of configs/papers: `sweep` trains, `probe` looks at fresh networks. Both take (config file, out
folder, quick) first. Quick: tiny models, a few steps, fewer seeds; the same code, but the numbers mean nothing.

An earlier call's results in the out folder are used again, by the same rules with quick as without. reproduce.py gives
quick calls an out folder of their own by default, so that neither takes the other's:

  trained runs   by scripts/sweep.py: a run that is done is not trained again; more train.steps are trained; a
                 config that has changed in more than `train --help` allows with --resume is an error
  probes         used again if their probed.json has the same resolved config and number of seeds, and is newer than
                 the program
  measures       of trained runs, measured_NAME.json in a run's folder: used again if newer than the run, the program
                 and every script; measures of probes are not kept
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from lib.base import processors
from lib.base.command import ROOT, ScriptError, ask, program
from lib.base.files import read_json, write_atomically
from lib.logs import np
from lib.logs.runs import Run
from lib.model.measures import Model
from lib.sweeps.grid import as_cell, load_sweep, resolve
from lib.theory import mean_field
from papers.lib.papers_results import Probed, Runs

CORPUS = ROOT / "data" / "austen.txt"
TINY = {"model.n_head": 2, "model.d_model": 16, "model.d_ff": 16, "model.context": 8, "train.steps": 4,
        "train.batch_size": 2, "eval.every": 2, "eval.batches": 1, "log.every": 1, "log.layers_every": 2}
TINY_PROBE = {"model.d_model": 16, "model.d_ff": 16, "train.batch_size": 4}


def normscope(*arguments):
    """The output of the program with these arguments. ScriptError: it fails."""
    process = ask(*map(str, arguments), purpose="makes what experiments measure", text=True)
    if process.returncode:
        raise ScriptError(process.stderr.strip(), process.returncode)
    return process.stdout


def last_change(*files):
    """When the newest of these files was written."""
    return max(Path(file).stat().st_mtime_ns for file in files)


# ---- training -------------------------------------------------------------------------------------------------


def sweep(config, out, quick, measure=None):
    """Trains the runs of a sweep file and returns them as Runs. `measure`: a function that gives {name: a number or
    nested lists of numbers} of a lib.logs.runs.Run. Only the last validation loss is computed, unless the grid has
    eval.every."""
    file, settings = tiny_sweep(config, out) if quick else (config, {})
    if "eval.every" not in read_json(file).get("grid", {}):
        settings["eval.every"] = 0
    settings = [f"{key}={value}" for key, value in settings.items()]
    options = [*(f"--set={setting}" for setting in settings), "--out", out, "--jobs", str(processors.usable())]
    if code := subprocess.run([sys.executable, ROOT / "scripts" / "sweep.py", file, *options], check=False,
                              stdout=None if sys.stdout.isatty() else subprocess.DEVNULL).returncode:
        sys.exit(code)
    points, rows = load_sweep(file, settings), []
    resolve(points)
    for point in points.runs:
        folder = out / point.name
        summary = read_json(folder / "summary.json")
        rows.append({key.rpartition(".")[2]: as_cell(point.value(key)) for key in points.columns} | {
            "status": summary["status"], "final_val_loss": summary.get("final_val_loss"),
            **(measured_once(folder, measure) if measure else {})})
    return Runs(rows)


def measured_once(folder, measure):
    """measure(run), kept in the run's folder as measured_NAME.json; see the rules at the top."""
    kept = folder / f"measured_{measure.__module__.rpartition('.')[2]}.json"
    sources = (folder / "summary.json", program(), *(ROOT / "scripts").rglob("*.py"))
    if not kept.exists() or last_change(kept) <= last_change(*sources):
        values = {name: np.asarray(value, float).tolist() for name, value in measure(Run(folder)).items()}
        write_atomically(kept, json.dumps(values))
    return json.loads(kept.read_text(encoding="utf-8"))


def tiny_sweep(config, out):
    """Writes a sweep file's tiny form to `out`: the same grid and cases, of a few steps and at most two seeds. Returns
    its path and the settings that all its models have."""
    spec, shared = read_json(config), {**TINY, "data.path": tiny_text(out)}
    grid, cases = spec.get("grid", {}), [case["set"] for case in spec.get("cases", [])]
    for key in grid.keys() & TINY.keys():
        if len(grid[key]) == 1:  # a setting of all runs; more values are the question
            grid[key] = [TINY[key]]
    for settings in cases:
        settings["train.steps"] = TINY["train.steps"]
    spec |= {"base": str((config.parent / spec["base"]).resolve()), "seeds": spec.get("seeds", [1])[:2]}
    write_atomically(out / config.name, json.dumps(spec))
    return out / config.name, {key: shared[key] for key in shared.keys() - set(grid).union(*cases)}


def tiny_text(folder):
    """The beginning of the text, as a file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    text.write_text(CORPUS.read_text(encoding="utf-8")[:4000], encoding="utf-8")
    return text


# ---- probing --------------------------------------------------------------------------------------------------


def probe(config, out, quick, variants, measure, law=None, seeds=8):
    """Probes fresh networks. `variants`: {name: {key of the section `model`: value}}, over the config. Returns {name:
    Probed}: an array with what `measure` gives of the lib.logs.runs.Run of each seed, and what `law` gives of
    lib.theory.mean_field.predicted."""
    results = {}
    for name, settings in variants.items():
        settings = {f"model.{key}": value for key, value in settings.items()}
        folder = out / re.sub(r"\W+", "-", f"{config.stem} {name}")
        runs = probed(config, folder, 2 if quick else seeds, quick, settings)
        results[name] = Probed(np.array([measure(run) for run in runs]), law and law(predicted(runs[0])))
    return results


def probed(config, folder, seeds, quick, settings):
    """The Runs of a probe's seeds, which is made unless an earlier one can be used again; see the rules at the top."""
    if quick:
        settings = {**TINY_PROBE, "data.path": tiny_text(folder.parent), **settings}
    settings = [f"{key}={value}" for key, value in settings.items()]
    note = json.dumps([seeds, mean_field.resolved(config, settings)])
    kept = folder / "probed.json"  # the note, written when the probe has ended
    if not kept.exists() or kept.read_text(encoding="utf-8") != note or last_change(kept) <= last_change(program()):
        normscope("probe", config, *(f"--set={setting}" for setting in settings), "--seeds", seeds, "--out", folder,
                  "--overwrite")
        write_atomically(kept, note)
    return [Run(folder / f"seed-{seed}") for seed in range(1, seeds + 1)]


def predicted(run):
    """lib.theory.mean_field.predicted of a run before training, also for models too narrow for the theory to be
    exact."""
    return mean_field.predicted(run.folder, narrow=True)


def site(run, name, *columns):
    """An array (columns, rows): columns of layers.csv at the rows of a site."""
    return run.rows("layers.csv", columns, keep=("site", (name,)))[:, :-1].T


def stream(run, column):
    """A column of a probe's layers.csv for the residual stream, an array (layers 0..L)."""
    return site(run, "stream", column)[0]


def fresh(run):
    """The model of a run's or a probe's config before training, with every tensor of its first batch."""
    dump = run.folder / "probed.safetensors"
    normscope("probe", run.folder / "config.json", "--dump", dump, "--out", run.folder / "probe", "--overwrite")
    model = Model(dump)
    dump.unlink()
    return model


def growth_of_gradient(run):
    """The gradient's rms at x_0 over that at x_L."""
    gradient = stream(run, "grad_rms")
    return gradient[0] / gradient[-1]


def law_of_growth(theory):
    return theory["grad"][0] / theory["grad"][-1]


# ---- measures of trained runs that several experiments have ----------------------------------------------------


def curve(run, name):
    """[logged steps, rms of the site at each]; of the stream, after the last block."""
    layer, *values = site(run, name, "layer", "step", "rms")
    return [column[layer == layer[-1]] for column in values]
