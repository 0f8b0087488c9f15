#!/usr/bin/python3
"""A run that starts from another one: finetuning on another text, and branches of a decay that keep the moments."""

import json
import os
import signal
import unittest

from cli import ENDLESS, TEXT, CliTest, Run, merged

from lib.compare import groups  # in scripts, which cli.py puts on the path
from lib.figures import plot_layers
from lib.logs import runs


class From(CliTest):
    def test_a_branch_with_moments_is_the_run_that_decays(self):
        """Bit for bit, as its batches go on behind the parent's: wsd is a constant rate, then a linear decay."""
        fixed = {"model": {"dropout": 0.1}, "train": {"steps": 16, "lr": 0.01}, "eval": {"every": 0}}
        for optimizer in ("adamw", "muon"):
            def changed(**train):
                return merged(fixed, {"train": {"optimizer": optimizer, **train}})

            whole = self.train("whole", changed(schedule="wsd", cooldown=0.5, steps=32), "--overwrite")
            self.train("parent", changed(schedule="constant"), "--overwrite")
            kept, fresh = (self.train(out, changed(schedule="linear"), "--overwrite", "--from", "parent", *options)
                           for out, options in (("kept", ["--moments"]), ("fresh", [])))
            self.assertTrue(kept.weights() == whole.weights())
            self.assertFalse(fresh.weights() == whole.weights())

    def test_another_text_keeps_the_vocabulary_and_a_kill_changes_nothing(self):
        parent = self.train("parent")
        self.write("other.txt", TEXT[:3000].replace("z", "s").replace("k", "c"))
        endless = merged(ENDLESS, {"data": {"path": "other.txt"}})
        self.assertLess(self.train("scratch", {"data": {"path": "other.txt"}}).summary["vocab"],
                        parent.summary["vocab"])
        killed = Run(self.path("killed"))
        self.end(self.start_training("killed", endless, "--from", "parent"), signal.SIGKILL)
        steps = len(killed.rows("metrics.csv")) + 20
        os.rename(self.path("parent"), self.path("moved"))  # it is needed no more
        self.normscope("train", "--resume", "killed", "--set", f"train.steps={steps}")
        os.rename(self.path("moved"), self.path("parent"))
        whole = self.train("whole", merged(endless, {"train": {"steps": steps}}), "--from", "parent")
        self.assert_same_results(killed, whole)
        self.assertEqual(whole.summary["vocab"], parent.summary["vocab"])
        evaluated = json.loads(self.normscope("eval", "whole", "--json").stdout)
        self.assertEqual(evaluated["nats"]["model"], whole.summary["final_val_loss"])

    def test_the_parent_is_recorded_and_a_difference(self):
        self.train("parent")
        child = self.train("child", None, "--from", "parent")
        known = child.summary["parent"]
        self.assertEqual((known["folder"], known["step"], known["moments"]), (self.path("parent"), 25, False))
        compared = json.loads(self.script("compare.py", "parent", "child", "--json").stdout)
        self.assertEqual([entry["label"] for entry in compared["runs"]],
                         ["parent · from scratch", f"child · from parent step 25 #{known['hash'][:6]}"])
        remarks = {remark["kind"]: remark["text"] for remark in compared["remarks"]}
        self.assertNotIn("repeat", remarks)
        self.assertIn(f"its training: from parent step 25 #{known['hash'][:6]}", remarks["history"])

    def test_a_validation_text_that_the_parent_trained_on_is_noted(self):
        self.train("parent")
        self.write("other.txt", TEXT[:3000])
        self.write("both.txt", TEXT)
        for data, is_noted in (({}, False), ({"val_fraction": 0.2}, True), ({"val_fraction": 0}, False),
                               ({"path": "other.txt"}, False), ({"path": "other.txt", "val_path": "text.txt"}, True),
                               ({"path": "both.txt", "val_fraction": 0.2}, True)):
            words = ("train", self.config({"data": data}), "--out", "child", "--overwrite", "--from", "parent")
            shown = self.normscope(*words).stdout
            self.assertEqual("note: the model has been trained on text that" in shown, is_noted, data)

    def test_theory_has_no_prediction_for_weights_of_another_run(self):
        self.train("parent")
        self.train("child", {"train": {"steps": 1}}, "--from", "parent")
        for folder, reasons in (("parent", []), ("child", ["its first weights are another run's"])):
            found = groups.group_by_config(runs.find_runs([self.path(folder)], "layers.csv"))
            self.assertEqual([note.partition(": ")[2] for note in plot_layers.predictions(found)[1]], reasons)


if __name__ == "__main__":
    unittest.main()
