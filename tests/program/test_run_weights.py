#!/usr/bin/python3
"""The weights that stand for a run folder: the commands and the scripts take the same file, and name it and its
step."""

import json
import os
import shutil
import signal
import unittest

from cli import CliTest, Run, count_lines, merged, with_metadata
from lib.base.command import ScriptError
from lib.logs import run_weights

EVERY = {"eval": {"every": 5, "batches": 0}, "checkpoint": {"every": 5}, "log": {"every": 5, "layers_every": 5}}


class RunWeights(CliTest):
    def setUp(self):
        super().setUp()
        os.chdir(self.folder)

    def assert_taken(self, run, name, step):
        """Every command takes the weights of the file `name` in the folder `run`, and says so."""
        path = os.path.join(run, name)
        line = f"weights of step {step}: {path}\n"
        self.assertIn(line, self.normscope("eval", run).stdout)
        self.assertEqual(json.loads(self.normscope("eval", run, "--json").stdout)["step"], step)
        self.assertEqual(self.normscope("eval", run, "--json").stdout, self.normscope("eval", path, "--json").stdout)
        probed = self.normscope("probe", f"{run}/config.json", "--from", run, "--out", "probe", "--overwrite").stdout
        self.assertTrue(probed.startswith(line), probed)
        sampled, from_file = (self.call("sample", weights, "--length", "40") for weights in (run, path))
        self.assertEqual((sampled.returncode, sampled.stdout), (0, from_file.stdout))
        self.assertEqual(sampled.stderr, "" if name == "model.safetensors" else line)
        file, tensors, metadata = run_weights.newest_weights(run)
        self.assertEqual((str(file), int(metadata["step"])), (path, step))
        self.assertEqual(tensors.keys(), Run(self.path(run)).tensors(name).keys())

    def assert_refused(self, run, *words, code):
        """Every command refuses the folder in one line that holds the words."""
        for command in (["eval"], ["sample"], ["probe", "tiny.json", "--out", "probe", "--overwrite", "--from"]):
            self.refused(*command, run, code=code, says=words)
        message = self.script("measure.py", run, code=code).stderr
        for word in words:
            self.assertIn(word, message)

    def interrupt(self, number):
        """Starts or prolongs the run, and ends it by a signal after some rows."""
        rows = count_lines("run/metrics.csv") + 8
        prolonged = merged(EVERY, {"train": {"steps": 90000}})
        self.end(self.start_training("run", prolonged, "--resume", rows=rows), number)

    def test_the_newest_weights_that_are_left_stand_for_a_run_unless_they_are_damaged(self):
        whole = self.train("whole", EVERY)
        sound, best_step = whole.bytes("model.safetensors"), whole.summary["best_step"]
        cut, older, stepless = sound[:-3], with_metadata(sound, {"step": "20"}), with_metadata(sound, {"step": "x"})
        for files, code, *expected in (  # that are replaced, or lost
                ({}, 0, "model.safetensors", 25),
                ({"checkpoint": None}, 0, "model.safetensors", 25),
                ({"checkpoint": None, "model": None}, 0, "best.safetensors", best_step),
                ({"checkpoint": None, "model": None, "best": None}, 2, "has no weights", "best.safetensors"),
                ({"checkpoint": cut, "model": older}, 1, "run/checkpoint.safetensors"),
                ({"checkpoint": sound, "model": b"\x07"}, 1, "run/model.safetensors"),
                ({"model": stepless}, 1, "run/model.safetensors"),
                ({"model": cut}, 1, "run/model.safetensors")):
            with self.subTest(files=files.keys(), expected=expected):
                shutil.copytree("whole", "run")
                for name, content in files.items():
                    os.remove(f"run/{name}.safetensors")
                    if content is not None:
                        self.write(f"run/{name}.safetensors", content)
                if code == 0:
                    self.assert_taken("run", *expected)
                else:
                    self.assert_refused("run", *expected, code=code)
                shutil.rmtree("run")

    def test_a_run_prolonged_and_interrupted_gives_its_checkpoint(self):
        run = self.train("run", EVERY)
        self.interrupt(signal.SIGINT)
        self.assertGreater(run.summary["steps"], 25)
        self.assertEqual(run.metadata("model.safetensors")["step"], "25")
        self.assert_taken("run", "checkpoint.safetensors", run.summary["steps"])

    def test_a_killed_run_gives_its_checkpoint(self):
        self.interrupt(signal.SIGKILL)
        steps = {name: int(Run(self.path("run")).metadata(name)["step"])
                 for name in ("checkpoint.safetensors", "best.safetensors")}
        newest = max(steps, key=steps.get)  # the best weights, if the kill has come before the checkpoint of their step
        self.assert_taken("run", newest, steps[newest])

    def test_a_diverged_run_without_weights_is_named_with_step_and_site(self):
        wild = merged(EVERY, {"train": {"optimizer": "sgd", "lr": 100, "grad_clip": 0}, "checkpoint": {"every": 0},
                              "model": {"norm_placement": "none"}, "eval": {"every": 0}})
        first = self.train("run", wild, code=3).summary["first_nonfinite"]
        self.assert_refused("run", f"diverged at step {first['step']}",
                            f"block {first['layer']} {first['site']} became non-finite", code=2)

    def test_a_folder_that_is_no_run_is_refused(self):
        os.makedirs("empty")
        self.train("run")
        for folder in ("empty", "."):
            self.assert_refused(folder, "no config.json", code=2)

    def test_a_flipped_bit_of_the_header_is_refused_by_the_scripts_too(self):
        run = self.train("run", EVERY)
        sound = run.bytes("model.safetensors")
        for at in range(8, 8 + int.from_bytes(sound[:8], "little"), 29):
            self.write("run/model.safetensors", sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1:])
            with self.assertRaisesRegex(ScriptError, r"^\[safetensors\] "):
                run.metadata()


if __name__ == "__main__":
    unittest.main()
