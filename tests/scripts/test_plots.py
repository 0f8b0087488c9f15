"""Runs the plotting scripts as a user would, on small made-up run folders."""

import contextlib
import math
import os
import re
import sys
import unittest
from pathlib import Path

from made_runs import CONFIG, CORPUS, MadeRuns

from lib.base.command import ScriptError
from lib.figures import output
from lib.logs.runs import Run


class Plots(MadeRuns):
    def test_pre_and_post(self):
        pre, post = self.make("pre"), self.make("post", model__norm_placement="post", model__final_norm=False, decay=30)
        svg = self.plot("layers", pre, post, png=True)
        self.has(svg, "pre", "post", "Gradient by depth, at step 60", "Gradient during training, block 1 and block 3",
                 "gradient rms of the stream (nats per unit)",
                 "3 blocks · width 16 · context 8 · layernorm · gpt2 · adamw · lr 0.001 · corpus · seed 1")
        self.assertEqual(self.plot("layers", pre, post), svg, "not deterministic")
        self.has(self.plot("loss", pre, post), "loss (bits per character)", "unigram 2.75",
                 f"uniform {math.log(len(set(CORPUS))):.2f}")

    def test_seeds_probes_and_runs_of_one_row(self):
        for seed in (1, 2, 3):
            self.make(f"s{seed}", train__seed=seed, log__every=seed)
            self.make(f"fake-probe/seed-{seed}", steps=(0,), probe=True, train__seed=seed)
        self.make("again/s1", steps=(1,))
        self.make("trained", train__steps=30)
        self.make("one", steps=(1,), model__n_layer=1, model__norm_placement="none")
        self.make("$x_1$", steps=(1,), diverged=True, name="of no sweep")
        both = "mean, geometric on logarithmic axes, and range of 3 seeds"
        for kind, runs, texts in (
                ("layers", ["s1", "s2", "s3", "s3/"], [f"pre · layernorm ({both})"]),
                ("loss", ["s1", "s2"], ["pre · layernorm (mean and range of 2 seeds)"]),
                ("layers", ["s1", "again/s1", "--step", "1"], ["s1 · pre · layernorm", "again/s1 · pre · layernorm"]),
                ("layers", ["one"], ["no norm", "Gradient by depth, at step 1"]), ("loss", ["one"], ["Training loss"]),
                ("layers", ["fake-probe"], ["Gradient by depth, at initialisation", f"pre · layernorm ({both})"]),
                ("layers", ["fake-probe", "trained"], ["30 steps", f"0 steps ({both})"]),
                ("layers", ["$x_1$"], ["no finite values", "$x_1$ (diverged at step 1)"]),
                ("loss", ["$x_1$"], ["no finite values", "Training loss"])):
            with self.subTest(kind, runs=runs):
                self.has(self.plot(kind, *runs), *texts)
        self.refused("plot.py", "loss", "fake-probe/seed-1", says="seed-1: no metrics.csv; a probe does not train")

    def test_a_run_that_a_kill_ended_within_its_first_step(self):
        """Its logs have a header and a row; it is drawn beside a whole run."""
        whole, torn = self.make("whole"), self.make("torn", model__norm="rmsnorm")
        for name, site, kind in (("layers.csv", "attn_out", "branches"), ("heads.csv", "", "heads"),
                                 ("layers.csv", "stream", "layers")):
            header, *rows = (whole / name).read_text().splitlines(keepends=True)
            (torn / name).write_text(header + next(row for row in rows if site in row))
            self.has(self.plot(kind, torn, whole), "layernorm", "rmsnorm")
        self.refused("plot.py", "heatmap", torn, whole, says="torn: one step is logged, a map needs two")

    def test_heat_maps(self):
        runs = [self.make("pre"), self.make("pre2", train__seed=2), self.make("post", model__norm_placement="post",
                                                                              diverged=True, decay=1e-3)]
        self.has(self.plot("heatmap", *runs), "pre (geometric mean of 2 seeds)", "post (diverged at step 60)",
                 "not finite, or no row", "diverged; beyond the scale: the colour of its end",
                 "gradient rms of the residual stream (nats per unit)")
        self.refused("plot.py", "heatmap", runs[0], "--site", "ffn_hidden", says="pre: layers.csv has no rows")
        self.refused("plot.py", "heatmap", self.make("p/seed-1", steps=(0,), probe=True), runs[0],
                     says="seed-1: one step is logged, a map needs two")

    def test_the_ladder_of_a_loss_that_falls_below_it(self):
        run = self.make("low")
        rows = (run / "metrics.csv").read_text().splitlines()
        (run / "metrics.csv").write_text("\n".join([*rows[:2], "60,480,15,0.01,0.01,0.001,1,1,1,1,1,1"]) + "\n")
        svg = self.plot("loss", run)
        self.assertEqual(re.findall(r">([a-z0-9-]+(?:gram|form)) [0-9.]+<", svg),
                         ["uniform", "unigram", "bigram", "trigram", "4-gram"])

    def test_a_picture_lies_in_the_folder_that_holds_its_runs(self):
        self.make("runs/a/pre")
        for names, folder in ((["runs/a/pre"], "runs/a/pre"), (["runs/a/pre", "runs/a/post"], "runs/a"),
                              (["runs/p/seed-1", "runs/p/seed-2"], "runs/p"), (["runs/p/seed-1"], "runs/p"),
                              (["runs/p/seed-1", "runs/a/pre"], "runs"), (["/elsewhere/pre", "runs/a/pre"], ".")):
            with contextlib.chdir(self.root):
                runs = [Run(name, CONFIG, {"status": "probe" if "seed" in name else "done"}) for name in names]
                self.assertEqual(output.folder_of(runs), Path(folder))
        done = self.call("plot.py", "layers", "runs/a/pre")
        self.assertEqual((done.returncode, done.stdout), (0, "wrote runs/a/pre/layers.png\n"), done.stderr)
        self.assertTrue((self.root / "runs/a/pre/layers.png").is_file())

    def test_errors_are_one_line(self):
        (self.root / "empty").mkdir()
        bare = self.make("bare")
        header = (bare / "layers.csv").read_text().partition("\n")[0]
        for files, arguments, says, *code in (  # files: {name: its new text, None if it is removed}
                ({}, ["layers", "nowhere"], "nowhere: no such folder"),
                ({}, ["layers", "empty"], "empty: no config.json"),
                ({}, ["layers", bare, "--step", "33"], "no row of step 33 in layers.csv; nearest: 30 and 40"),
                ({}, ["layers", bare, "-o", "x.gif"], r"-o x\.gif"),
                ({}, ["layers", bare, "-o", "corpus.txt/x.png"], "corpus.txt", 1),
                ({"layers.csv": header}, ["layers", bare], "bare: layers.csv has no rows yet"),
                ({"layers.csv": None}, ["layers", bare], "bare: no layers.csv; set log.layers_every"),
                ({"config.json": '{"model": 3}'}, ["loss", bare],
                 "bare: damaged config.json: expected that of a run", 1),
                ({"config.json": '{"a":' * 100_000 + "1" + "}" * 100_000}, ["loss", bare],
                 "bare: damaged config.json", 1)):
            for name, text in files.items():
                (bare / name).unlink()
                if text is not None:
                    (bare / name).write_text(text + "\n")
            self.refused("plot.py", *arguments, says=says, code=code[0] if code else 2)

    def test_a_log_that_is_not_one_trajectory_is_refused_with_its_line(self):
        folder = self.make("run")
        (folder / "summary.json").write_text('{"status": "running", "steps": 60, "logged_since": 0}')
        for name, size in (("metrics.csv", 1), ("layers.csv", 17), ("heads.csv", 6)):
            path = folder / name
            header, *rows = sound = path.read_text().splitlines()
            begin = 1 + 2 * size  # of step 20

            def changed(old, new, begin=begin, sound=sound):
                return [*sound[:begin], sound[begin].replace(old, new, 1), *sound[begin + 1:]]

            faults = [(changed(",", ";"), begin, "got "), (changed(",", ",,"), begin, "got "),
                      (changed(",", "\0,"), begin, "got "), (changed("20,", "two,"), begin, "a cell is no number|no step"),
                      (changed("20,", "2000000000,"), begin, "2000000000 is no step|follows"),
                      (changed("20,", "5,"), begin, "step 5 follows step 10"),
                      ([*sound, *rows], len(sound), "step 1 follows step 60"),
                      ([header, *sorted([*rows, *rows], key=lambda row: int(row.split(",")[0]))], 1, "step 1 has "),
                      ([*sound[:begin], *sound[begin + size:]], begin, "expected a row of step 20"),
                      (sound[:-2 * size], len(sound) - 2 * size, "expected a row of step 50")]
            if size > 1:
                faults += [(sound[:begin] + sound[begin + 1:], begin, f"step 20 has {size - 1} rows; expected {size}"),
                           (changed("20,0,", "20,-5,") if name == "layers.csv" else changed("20,1,", "20,-5,"), begin,
                            "no run has such a layer")]
            for lines, at, says in faults:
                with self.subTest(name, says=says):
                    path.write_text("\n".join(lines) + "\n")
                    with self.assertRaisesRegex(ScriptError, rf"{name} line {at + 1}: ({says}).*; restore the log"):
                        Run(folder).rows(name, ("step", *header.split(",")[1:2]), "")
            path.write_text("\n".join(sound) + f"\n70,{rows[-1][:9]}")  # torn by a kill: left out
            self.assertEqual(Run(folder).rows(name, ("step",), "")[-1, 0], 60)
        path = folder / "metrics.csv"
        path.write_text(path.read_text() + "30,240,7.5,1,,1,1,1,1,1,1,1\n")
        for command in (("plot.py", "loss", folder), ("compare.py", folder, "--target", "2")):
            done = self.call(*command)
            self.assertEqual(done.returncode, 1)
            self.assertIn("metrics.csv line 9: ", done.stderr)

    @unittest.skipUnless(sys.executable == "/usr/bin/python3", "needs the distribution's Python")
    def test_another_python_first_on_path(self):
        run = self.make("run")
        bin_folder = self.root / "bare_python" / "bin"
        bin_folder.mkdir(parents=True)
        (bin_folder / "python3").symlink_to("/usr/bin/python3")
        (bin_folder.parent / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
        path = f"{bin_folder}:{os.environ['PATH']}"
        self.has(self.plot("layers", run, start=(), env={**os.environ, "PATH": path}), "pre · layernorm")
        for script, *arguments in (("plot.py", "layers", run), ("compare.py", run), ("report.py", run),
                                   ("measure.py", run), ("predict.py", run / "config.json")):
            result = self.call(script, *arguments, start=("/usr/bin/python3", "-S"))
            topic = script.removesuffix(".py")
            self.assertRegex(result.stderr, rf"\A\[{topic}\] .*; install python3-matplotlib and python3-numpy\n\Z")
            self.assertEqual(result.returncode, 1)


if __name__ == "__main__":
    unittest.main()
