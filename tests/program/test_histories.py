#!/usr/bin/python3
"""Random histories of texts, configs, runs and sweeps that are written, copied, linked and moved: whatever became of
paths, resume, eval, compare and sweep know a text by its bytes. NORMSCOPE_LONG=1 draws 200 instead of 8;
NORMSCOPE_SEED=N others."""

import collections
import functools
import json
import os
import random
import shutil
import unittest
from pathlib import Path

from cli import LONG, ROOT, TEXT, CliTest, Run, environment, run_script, without_comparison
from lib.compare import comparison
from lib.logs.runs import find_runs

FIRST = int(os.environ.get("NORMSCOPE_SEED", "1"))
TEXTS = [TEXT[:600], TEXT[:600] + "e", TEXT[600:1000], "e" + TEXT[600:1000]]  # two pairs are alike, end to end
CONFIG = {"model": {"n_layer": 1, "n_head": 1, "d_model": 8, "context": 8}, "eval": {"every": 0},
          "train": {"steps": 2, "batch_size": 2, "schedule": "constant"}}


def noted(run):
    """The text that a run was trained on, in a file that goes with its folder."""
    return json.loads((run / "note").read_text(encoding="utf-8"))


def train_of(run):
    return Run(run).json("config.json")["train"]


class Histories(CliTest):
    def test_histories(self):
        for seed in range(FIRST, FIRST + (200 if LONG else 8)):
            with self.subTest(seed=seed):
                self.draw, self.world = random.Random(seed), Path(self.path(f"world{seed}"))
                (self.world / "a" / "b").mkdir(parents=True)
                acts = [self.write_text, self.move, self.move, self.copy, self.link, self.train, self.resume,
                        self.evaluate, self.compare,
                        self.sweep]
                for act in [self.write_text, self.write_text, self.train, self.sweep, *self.draw.choices(acts, k=24)]:
                    act()

    # ---- acts on texts, configs (.cfg), runs and folders -------- ---------------------------------------------------

    def entries(self, suffix=""):
        inside = {path.parent for path in self.world.rglob("config.json")}  # a run moves as a whole
        return [path for path in sorted(self.world.rglob(f"*{suffix}"))
                if path.parent not in inside and (path.is_dir() or path.is_file() and path.suffix in (".txt", ".cfg"))]

    def place(self, suffix=""):
        folders = [path for path in self.entries() if path.is_dir() and not (path / "config.json").exists()]
        folder = self.draw.choice([self.world, *folders])
        return next(path for path in (folder / f"{number}{suffix}" for number in range(100))
                    if not os.path.lexists(path))

    def write_text(self):
        path = self.draw.choice([self.place(".txt"), *self.entries(".txt")])
        path.write_text(self.draw.choice(TEXTS), encoding="utf-8")

    def move(self):
        """To a new name, or one level up with all that lies beside it."""
        path = self.draw.choice(self.entries())
        up = self.draw.random() < 0.5 and path.parent != self.world
        for entry in [entry for entry in self.entries() if entry.parent == path.parent] if up else [path]:
            to = entry.parent.parent / entry.name if up else self.place(entry.suffix)
            if not os.path.lexists(to) and entry not in Path(os.path.realpath(to)).parents:
                entry.rename(to)

    def copy(self):
        path = self.draw.choice(self.entries())
        to = self.place(path.suffix)
        if path.is_file():
            shutil.copy(path, to)
        elif Path(os.path.realpath(path)) not in Path(os.path.realpath(to)).parents:
            shutil.copytree(path, to, symlinks=True)

    def link(self):
        path = self.draw.choice(self.entries())
        to = self.place(path.suffix)
        to.symlink_to(self.draw.choice([path, os.path.relpath(path, os.path.realpath(to.parent))]))

    # ---- the text that belongs to a config or a run -----------------------------------------------------------------

    def config(self):
        """An old one, or a new one with paths that are absolute, or relative to it or to the working directory."""
        path, old = self.place(".cfg"), self.entries(".cfg")
        if old and self.draw.random() < 0.5:
            return self.draw.choice(old)
        names = [self.draw.choice([str(text), os.path.relpath(text, path.parent), os.path.relpath(text, self.folder)])
                 for text in self.draw.choices(self.entries(".txt"), k=2)]
        data = self.draw.choice([{"path": names[0]}, {"path": names}, {"path": names[0], "val_path": names[1]}])
        path.write_text(json.dumps({**CONFIG, "data": data}), encoding="utf-8")
        return path

    def find(self, name, config):
        places = [config.parent / name, Path(self.folder, name)]
        if config.name == "config.json":  # the text of a run may have moved with it
            parts = Path(name).parts
            places += [folder.joinpath(*parts[i:]) for i in range(1, len(parts)) for folder in config.resolve().parents]
        return next((place for place in places if place.is_file()), places[0])

    def text_of(self, config, path=None):
        """Training text and validation text that a config names, or with another data.path; None where one is
        missing."""
        data = {"val_path": "", **json.loads(config.read_text(encoding="utf-8"))["data"]}
        names = data["path"] if isinstance(data["path"], list) else [data["path"]]
        paths = [path] if path else [self.find(name, config) for name in names]
        ends = [self.find(data["val_path"], config)] if data["val_path"] else []
        if not all(path.is_file() for path in paths + ends):
            return None
        # None ends in a newline, so that each but the last gets one.
        return ["\n".join(path.read_text(encoding="utf-8") for path in part) for part in (paths, ends)]

    # ---- the answers of the program --------------------------------------------------------------------------------

    def succeeds(self, call, text, runs=(), code=1):
        """Whether a call finds a text, that of all these runs. If not, it says so, advises to remove nothing, and
        leaves them as they are."""
        before = {path: path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file()}
        result = call()
        expected = 2 if text is None else 0 if all(noted(run) == text for run in runs) else code
        self.assertEqual(result.returncode, expected, f"{result.args}\n{result.stdout}\n{result.stderr}")
        if expected:
            self.assertRegex(result.stdout + result.stderr, r"(?m)\[\w+\] .*(o such file|another text)")
            self.assertNotRegex(result.stdout + result.stderr, "remove|delete|overwrite|Traceback")
            self.assertEqual({path: path.read_bytes() for path in before}, before)
        return expected == 0

    def note(self, run, text):
        """The run must be that of a text and its config in one go."""
        (run / "note").write_text(json.dumps(text), encoding="utf-8")
        self.assertEqual(Run(run).weights(), self.undisturbed(*text, train_of(run)["seed"], train_of(run)["steps"]))

    @functools.cache
    def undisturbed(self, text, end, seed, steps):
        data = {"path": self.write("text.txt", text), **({"val_path": self.write("end.txt", end)} if end else {})}
        self.write("whole.cfg",
                   json.dumps({**CONFIG, "data": data, "train": {**CONFIG["train"], "seed": seed, "steps": steps}}))
        self.normscope("train", "whole.cfg", "--out", "whole", "--overwrite")
        return Run(self.path("whole")).weights()

    def train(self):
        config, run = self.config(), self.place()
        words = [str(config), f"--out={run}", f"--set=train.seed={self.draw.choice([1, 2])}"]
        if self.succeeds(lambda: self.call("train", *words), text := self.text_of(config)):
            self.note(run, text)

    def runs(self):
        return [path.parent for path in sorted(self.world.rglob("note"))]

    def resume(self):
        run, config, path = self.draw.choice(self.runs()), self.config(), self.draw.choice(self.entries(".txt"))
        words, text = self.draw.choice([
            ([run], self.text_of(run / "config.json")),
            ([run, f"--set=data.path={os.path.relpath(path, self.folder)}"], self.text_of(run / "config.json", path)),
            ([config, f"--out={run}", f"--set=train.seed={train_of(run)['seed']}"], self.text_of(config))])
        words += ["--resume", f"--set=train.steps={train_of(run)['steps'] + 2}"]
        if self.succeeds(lambda: self.call("train", *map(str, words)), text, [run]):
            self.note(run, text)

    def evaluate(self):
        run = self.draw.choice(self.runs())
        if self.succeeds(lambda: self.call("eval", str(run)), self.text_of(run / "config.json"), [run]):
            self.assertIn(f"{Run(run).summary['final_val_loss']:.6f}", self.normscope("eval", str(run)).stdout)

    def compare(self):
        def config_of(run):
            return (*noted(run), train_of(run)["steps"])

        folders, seeds = self.draw.sample(self.runs(),
                                          self.draw.randint(1, len(self.runs()))), collections.defaultdict(list)
        for run in folders:
            seeds[config_of(run)].append(train_of(run)["seed"])
        result = comparison.comparison(find_runs(folders, "config.json"))
        for entry in result["runs"]:
            self.assertEqual(len({config_of(Path(folder)) for folder in entry["folders"]}), 1, "two texts in one group")
        self.assertEqual(len(result["runs"]), sum(max(map(of.count, of)) for of in seeds.values()),
                         "a text in two groups")
        self.assertEqual(any("losses are not comparable" in remark["text"] for remark in result["remarks"]),
                         len(seeds) > 1)

    def sweep(self):
        config = self.config()
        out = self.draw.choice([self.place(), *(path.parent for path in sorted(self.world.rglob("summary.csv")))])
        words = [config, "--seeds", 2, "--jobs", 1, "--out", out]
        all_runs = [out / "seed=1", out / "seed=2"]
        finished, text = [run for run in all_runs if (run / "note").exists()], self.text_of(config)
        times = [(run / "model.safetensors").stat().st_mtime_ns for run in finished]

        def call():
            with without_comparison():
                return run_script(f"{ROOT}/scripts/sweep.py", *words, cwd=self.folder, env=environment())

        if self.succeeds(call, text, finished):
            self.assertEqual([(run / "model.safetensors").stat().st_mtime_ns for run in finished], times)
        for run in set(all_runs) - set(finished) if text else ():
            self.note(run, text)


if __name__ == "__main__":
    unittest.main()
