"""Small made-up run folders for the tests of scripts, and calling the scripts as a user would."""

import copy
import functools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from cli import BINARY, PATIENCE, fnv1a, run_script, write_run
from lib.figures import layout, output  # in scripts, which cli.py puts on the path
from lib.figures.drawing import drawing

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CORPUS = "the cat sat on the mat; the dog did not.\n" * 20 + "zebra!\n"
NGRAMS = {"unigram": 2.75, "bigram": 1.5, "trigram": 1.0, "4-gram": 0.75}
CONFIG = {
    "name": "fake",
    "model": {"n_layer": 3, "n_head": 2, "d_model": 16, "context": 8, "norm": "layernorm", "norm_placement": "pre",
              "final_norm": True, "init": {"scheme": "gpt2"}},
    "data": {"path": "", "val_fraction": 0.1, "val_path": ""},
    "train": {"steps": 60, "batch_size": 8, "lr": 0.001, "optimizer": "adamw", "seed": 1, "threads": 0},
    "eval": {"every": 30}, "$derived": ["model.final_norm"], "$idle": [], "log": {"every": 10, "layers_every": 10},
}


def corpus_hash(path):
    """As in a run's summary: of the text's bytes; None where there is no text."""
    return f"{fnv1a(Path(path).read_bytes()):016x}" if Path(path).is_file() else None


@functools.cache
def draw_once():
    """Draws a figure, so that every script's child process inherits the fonts that matplotlib has loaded."""
    figure = drawing(layout.Figure)()
    figure.subplots().set(yscale="log", title="title")
    for kind in ("png", "svg"):
        output.file_bytes(figure, kind)


def resolved(base, *settings):
    """The resolved config of each of these settings, {dotted key: value}, over the config in the file `base`."""
    lines = [json.dumps([f"{key}={json.dumps(value)}" for key, value in setting.items()]) for setting in settings]
    batch = subprocess.run([BINARY, "config", "--batch", base], input="\n".join(lines), capture_output=True,
                           encoding="utf-8", check=True, cwd=Path(base).parent)
    return [json.loads(line)["config"] for line in batch.stdout.splitlines()]


class MadeRuns(unittest.TestCase):
    """A test with its own folder for made-up runs, and a text that their configs name."""

    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.corpus = self.root / "corpus.txt"
        self.corpus.write_text(CORPUS, encoding="utf-8")

    def make(self, folder, steps=(1, 10, 20, 30, 40, 50, 60), probe=False, diverged=False, decay=1.0, **settings):
        """A run folder of a sweep, or of none if a `name` is set; settings are config keys with __ for the dot. A
        diverged run ends in a row of nan."""
        config = {**copy.deepcopy(CONFIG), "name": Path(folder).name}
        config["data"]["path"] = str(self.corpus)
        for key, value in settings.items():
            *path, last = key.split("__")
            place = config
            for part in path:
                place = place[part]
            place[last] = value
        if config["model"]["norm_placement"] in ("none", "rezero"):  # norms have no effect
            config["model"] |= {"norm": "none", "final_norm": False}
            config |= {"$derived": [], "$idle": ["model.norm", "model.final_norm"]}
        folder = self.root / folder
        layers = [
            "step,layer,site,mean,rms,abs_max,nonfinite,grad_rms,grad_abs_max,grad_norm,grad_nonfinite,branch_share,token_cosine"]
        heads = ["step,layer,head,max_logit,entropy,first_share"]
        params = ["step,layer,param,numel,rms,update_rms"]
        metrics = ["step,tokens,seconds,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms,tokens_per_s,train_loss_max,"
                   "grad_norm_max"]
        for step in steps:
            lost = diverged and step == steps[-1]
            for layer in range(config["model"]["n_layer"] + 1):
                rms, grad = 1 + layer, 1e-3 * decay ** layer * (1 + 0.1 * config["train"]["seed"])
                values = ("nan", "inf") if lost else (rms, grad)
                layers.append(f"{step},{layer},stream,0,{values[0]},1,0,{values[1]},1,1,0,,"
                              f"{'nan' if lost else 1 - 1 / (1 + layer * step)}")
                layers.append(f"{step},{layer},attn_in,0,777,1,0,777,1,1,0,,")
                update = "nan" if lost else 1e-3 * (1 + layer)
                names = [f"blocks.{layer - 1}.{name}.weight" for name in ("attn.q", "ffn.in", "ffn_norm")]
                params += [f"{step},{layer},{name},9,2,{update}" for name in names if layer]
                params += [f"{step},0,embed.token.weight,9,2,{update}"] * (layer == 0)
                if layer:
                    heads += [f"{step},{layer},{head},{head - 1 / layer},{1 + head},{0.1 * layer}" for head in (0, 1)]
                    layers += [f"{step},{layer},{site},0,{out},1,0,{grad},1,1,0,{share}," for site, out, share in
                               (("attn_out", layer / 4, "nan" if lost else 0.25), ("stream_mid", rms, ""),
                                ("ffn_out", layer / 2, "nan" if lost else layer / 2 / rms))]
            loss = "nan" if lost else 1.5 + 2 / max(step, 1)
            metrics.append(f"{step},{step * 8},{step / 4},{loss},{2.0 if step % 30 == 0 else ''},0.001,2,0.5,1,1,{loss},2")
        summary = {"status": "done", "vocab": len(set(CORPUS)), "corpus_hash": corpus_hash(config["data"]["path"]),
                   **NGRAMS}
        if diverged:
            summary |= {"status": "diverged", "first_nonfinite": {"step": steps[-1], "layer": 1, "site": "stream"}}
        write_run(folder, config, {"status": "probe"} if probe else summary)
        (folder.parent / ".lock").touch()
        logs = {"layers": layers, "heads": heads, "params": params, "metrics": metrics}
        for name in [*logs][:3 if probe else 4]:
            (folder / f"{name}.csv").write_text("\n".join(logs[name]) + "\n", encoding="utf-8")
        return folder

    def call(self, script, *args, start=(sys.executable,), **options):
        """Runs a script by the command `start`; in a new process where that or options of subprocess.run() are
        given."""
        if start == (sys.executable,) and not options:
            draw_once()
            return run_script(SCRIPTS / script, *args, cwd=self.root)
        return subprocess.run([*start, str(SCRIPTS / script), *map(str, args)], capture_output=True, text=True,
                              timeout=PATIENCE, cwd=self.root, check=False, **options)

    def plot(self, kind, *args, png=False, **options):
        """Plots to out.svg, and with `png` to out.png too; returns the SVG's text."""
        for name in ("out.svg", "out.png")[:1 + png]:
            done = self.call("plot.py", kind, *args, "-o", self.root / name, **options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "")
            self.assertIn(name, done.stdout)
        if png:
            picture = (self.root / "out.png").read_bytes()
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(int.from_bytes(picture[16:20], "big"), 1400)
        return (self.root / "out.svg").read_text(encoding="utf-8")

    def refused(self, script, *args, says, code=2, **options):
        done = self.call(script, *args, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, r"\A\[(plot|report)\] .*" + says)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def has(self, svg, *texts):
        for text in texts:
            self.assertTrue(f">{text}<" in svg, f"{text!r} is not in the SVG")
