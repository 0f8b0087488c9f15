#!/usr/bin/python3
"""A run that was interrupted and then resumed equals one that was never disturbed, bit for bit; a folder that holds a
run is safe from everything that was not asked for. Kills and disks: test_crash.py; refusals: test_cli_errors.py."""

import json
import os
import re
import resource
import signal
import unittest

import numpy as np
from cli import ENDLESS, LOGS, CliTest, Run, environment, merged, with_metadata, write_safetensors

KEPT, KEPT_STEPS = {"checkpoint": {"keep_every": 7}, "log": {"every": 1}}, [0, 1, 2, 4, 7, 8, 14, 16, 21]


def torn(log):
    """A log after a power failure, which leaves zeros in its last rows."""
    lost = log.index(b"\n25,") + 1
    return log[:lost] + bytes(9) + log[lost + 9:] + b"26,1664,3.9"


END = dict.fromkeys(("model.safetensors", "sample.txt"))  # the files that a run writes last, lost
# Whether a run is done or half done, changes of the tiny config, what becomes of the run's files (None: lost), the
# steps that it is to have when it is resumed, and what that says. It ends as a run of so many steps that was never
# disturbed.
STORIES = [
    ("half", {}, dict.fromkeys(LOGS, torn), 25, "after step 20"),
    ("half", {}, {"checkpoint.safetensors": None}, 25, "starting at step 0"),
    ("half", {"train": {"branch_warmup_steps": 40}}, {}, 25, "after step 20"),
    ("half", KEPT, {"weights/step_24.safetensors": b"of a later step"}, 25, "after step 20"),
    ("half", {"train": {"schedule": "constant"}}, {}, 60, "train.steps changes: 25 -> 60\n"),
    ("half", {"train": {"warmup_steps": 25}}, {}, 60, "25 -> 60; so does the learning rate schedule"),
    ("half", {"train": {"schedule": "wsd", "cooldown": 0.1}}, {}, 60, "25 -> 60; so does the learning rate schedule"),
    ("done", {}, {"summary.json": b"", **END}, 25, "finishing"),
    ("done", {}, {"summary.json": b'{"status": "done"', **END}, 25, "finishing"),
    ("done", {}, {"summary.json": b'{"status": "running", "seconds": "x"}', **END}, 25, "finishing"),
]


class ResumeTest(CliTest):
    def resume(self, run, *settings):
        sets = [f"--set={setting}" for setting in settings]
        return self.normscope("train", "tiny.json", "--out", run.path, "--resume", *sets)

    def resume_refused(self, run, *settings, says):
        sets = [f"--set={setting}" for setting in settings]
        self.refused("train", "tiny.json", "--out", run.path, "--resume", "--quiet", *sets, code=1, says=says)


class Stories(ResumeTest):
    def test_a_resumed_run_ends_as_if_undisturbed(self):
        for number, (state, changes, files, steps, says) in enumerate(STORIES):
            with self.subTest(number=number):
                run = {"half": self.half_done, "done": self.train}[state](f"run-{number}", changes)
                for name, content in files.items():
                    if content is None:
                        os.remove(run.file(name))
                    else:
                        self.write(run.file(name), content(run.bytes(name)) if callable(content) else content)
                self.assertIn(says, self.resume(run, f"train.steps={steps}").stdout)
                whole = self.train(f"whole-{number}", merged(changes, {"train": {"steps": steps}}))
                self.assert_same_results(run, whole)

    def test_the_best_starts_anew_without_its_weights(self):
        run = self.half_done(changes={"eval": {"every": 10}})
        os.remove(run.file("best.safetensors"))
        result = self.call("train", "tiny.json", "--out", "run", "--resume")
        self.assertRegex(result.stderr, r"^note: \S*best\.safetensors is missing; [^\n]*\n$")
        self.assertEqual((result.returncode, run.summary["best_step"], run.metadata("best.safetensors")["step"]),
                         (0, 25, "25"))

    def test_seconds_go_on(self):
        """After a resume they begin where those of the checkpoint's step were, by the mean time of a step until the
        last row; also if that step's evaluation was interrupted."""
        for name, pending in ("slow", {}), ("evaluating", {"unlogged_grad_norm": "1"}):
            run = self.half_done(name, {"log": {"every": 9}})
            self.write(run.file("checkpoint.safetensors"), with_metadata(run.bytes("checkpoint.safetensors"), pending))
            header, *rows = run.bytes("metrics.csv").decode().splitlines()
            column = header.split(",").index("seconds")
            cells = [row.split(",") for row in rows]
            for row in cells:
                row[column] = str(100 * int(row[0]))
            self.write(run.file("metrics.csv"), "\n".join([header, *map(",".join, cells)]) + "\n")
            self.resume(run, "log.every=1")
            for row in run.rows("metrics.csv"):
                step = int(row["step"])
                self.assertAlmostEqual(float(row["seconds"]), 100 * min(step, 20), delta=20, msg=name)

    def test_allowed_keys_change_and_the_weights_stay_the_same(self):
        whole, run = self.train("whole"), self.half_done()
        lucky = with_metadata(run.bytes("checkpoint.safetensors"), {"best_val_loss": "0.5"})
        self.write(run.file("checkpoint.safetensors"), lucky)
        output = self.resume(run, "log.every=1", "log.layers_every=0", "eval.every=3", "eval.batches=0",
                             "checkpoint.every=2", "train.threads=2", "train.on_nonfinite=skip", "name=other").stdout
        self.assertNotIn("schedule", output)
        rows = run.rows("metrics.csv")
        self.assertEqual([int(row["step"]) for row in rows], [*range(1, 11), 20, 21, 22, 23, 24, 25])
        self.assertEqual(run.summary["trajectory_hash"], whole.summary["trajectory_hash"])
        self.assertTrue(run.weights() == whole.weights())
        for name in LOGS[1:]:  # rows past the checkpoint go from logs that are off now too
            self.assertEqual(run.rows(name)[-1]["step"], "20")
        # Evaluations before the resume had other windows, and do not compete.
        self.assertEqual(run.summary["best_val_loss"],
                         min(float(row["val_loss"]) for row in rows[-5:] if row["val_loss"]))

    def test_a_run_goes_on_without_one_of_its_logs(self):
        run = self.half_done()
        os.remove(run.file("layers.csv"))
        for steps in (45, 50):
            self.resume(run, f"train.steps={steps}", "log.every=4", "checkpoint.every=40")
        self.assertEqual([row["step"] for row in run.rows("metrics.csv")][9:14], ["10", "20", "24", "28", "30"])
        self.assertEqual(run.summary["logged_since"], 20)

    def test_damaged_logs_are_refused(self):
        """Each log, also one that is off now, whose keys say no longer which rows are due."""
        run = self.half_done()
        for name in LOGS:
            sound = run.bytes(name)
            tenth, twentieth = sound.index(b"\n10,") + 1, sound.index(b"\n20,") + 1
            self.write(run.file(name), sound[:tenth] + sound[twentieth:])
            self.resume_refused(run, says=[f"{name}: ", "expected a row of step 10"])
            self.write(run.file(name), sound.replace(b"\n10,", b"\n10;", 1))
            self.resume_refused(run, "log.layers_every=0", says=[f"{name}: ", "got"])
            self.write(run.file(name), sound)

    def test_a_damaged_checkpoint_is_refused(self):
        run = self.half_done()
        sound = run.bytes("checkpoint.safetensors")
        for content in (b"", sound[:-1], run.bytes("metrics.csv")):
            self.write(run.file("checkpoint.safetensors"), content)
            self.resume_refused(run, says=["[safetensors] ", "run/checkpoint.safetensors"])
        for key, values in {"normscope": (None, "2"), "config": (None, "[]", "{"), "vocab": (None, "[]", "[10,32]"),
                            "corpus": (None, "f" * 16), "step": (None, "-1", "26", "2.5", " 1"),
                            "trajectory_hash": (None, "f" * 17), "best_val_loss": ("1,5",), "best_step": ("x",),
                            "skipped": ("x",), "updates": (None,), "train_loss_max": (None,),
                            "skipped_in_a_row": (None,), "branch_share": ("x",)}.items():
            for value in values:
                with self.subTest(f"{key} {value!r}"):
                    self.write(run.file("checkpoint.safetensors"), with_metadata(sound, {key: value}))
                    self.resume_refused(run, says=["checkpoint.safetensors"])
        self.write(run.file("checkpoint.safetensors"), with_metadata(sound, {"something_new": "is ignored"}))
        self.resume_refused(run, "train.steps=20", says=["raise train.steps"])
        self.assertIn("after step 20", self.resume(run).stdout)


class Interruption(ResumeTest):
    def test_signals_save_the_run_and_say_how_to_go_on(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores hangups, and what this test starts would too
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
                       signal.SIGALRM, signal.SIGVTALRM):  # of terminals, schedulers, limits and timers
            run = Run(self.path("it's " + signal.Signals(number).name))
            code, stderr = self.end(self.start_training(run.path, merged(ENDLESS, {"eval": {"every": 7}})), number)
            self.assertEqual(code, 130, stderr)
            stopped = run.summary["steps"]
            message = re.fullmatch(rf"interrupted after step {stopped}; go on with: (.*)\n", stderr)
            self.assertTrue(message, stderr)
            self.assertEqual(run.summary["status"], "interrupted")
            self.assertEqual(run.metadata("checkpoint.safetensors")["step"], str(stopped))
            steps = {stopped, stopped - (stopped % 7 == 0)}  # an evaluation that was interrupted has no row yet
            self.assertIn(int(run.rows("metrics.csv")[-1]["step"]), steps)
            sets = f"--set=train.steps={stopped + 30}"
            said = self.normscope("-c", f"{message[1]} {sets}", program="sh").stdout
            self.assertIn("train.steps changes", said)
            self.normscope("train", "tiny.json", "--out", "whole", "--overwrite", sets)
            self.assert_same_results(run, Run(self.path("whole")))

    def test_a_second_writer_is_refused_at_once(self):
        process = self.start_training("run", ENDLESS)
        self.config(name="short.json")
        for option in ([], ["--resume"], ["--overwrite"]):
            refused = self.normscope("train", "short.json", "--out", "run", *option, code=1)
            self.assertRegex(refused.stderr, r"^\[lock\] run: another process [^\n]*\n$")
        self.assertEqual(self.end(process, signal.SIGINT)[0], 130)

    def test_a_run_without_room_for_its_config_starts_when_there_is_some(self):
        # ThreadSanitizer begins with a larger file of its own, unless there is no place for it.
        result = self.normscope("train", self.config(), "--out", "run", code=1, env=environment(TMPDIR="/dev/null"),
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)))
        self.assertRegex(result.stderr, r"^\[file\] run/config.json: cannot be written: .*\n$")
        run = Run(self.path("run"))
        self.resume(run)
        self.assert_same_results(run, self.train("whole"))


class Finished(ResumeTest):
    def test_it_is_left_alone_or_prolonged(self):
        run = self.train("run")
        before = run.contents()
        self.assertIn("is finished", self.resume(run).stdout)
        self.assertIn("is finished (step 25; train.steps asks for no more than 24);",
                      self.resume(run, "train.steps=24").stdout)
        self.assertEqual(run.contents(), before)
        self.assertIn("schedule", self.resume(run, "train.steps=40").stdout)
        longer = self.train("longer", {"train": {"steps": 40}})
        self.assertEqual(*((one.summary["steps"], one.summary["status"], one.rows("metrics.csv")[-1]["lr"])
                           for one in (run, longer)))

    def test_its_past_is_kept_shown_and_a_difference(self):
        def prolonged(out, *steps):
            run = self.train(out, None, "--overwrite")
            for count in steps:
                self.resume(run, f"train.steps={count}")
            return run.summary.get("past")

        past = [{"step": 25, "train.steps": 25}, {"step": 30, "train.steps": 30}]
        self.assertEqual(prolonged("run", 30), past[:1])
        self.assertEqual(prolonged("again", 30, 40), past)
        self.assertRegex(self.normscope("config", "again", "--origin").stdout,
                         r"train\.steps +40 +again/config\.json; 25 until step 25, 30 until step 30\n")
        summary = Run(self.path("again")).json("summary.json")
        self.write("again/summary.json", json.dumps(summary | {"past": [1, {"step": 3}, past[0]]}))  # damaged
        self.assertIn("; 25 until step 25\n", self.normscope("config", "again", "--origin").stdout)
        for out, seed in (("fresh", 1), ("other", 2)):
            self.train(out, {"train": {"steps": 30, "seed": seed}})
        compared = json.loads(self.script("compare.py", "run", "fresh", "other", "--json").stdout)
        self.assertEqual([(entry["label"].split(" · ")[-1], entry["seeds"]) for entry in compared["runs"]],
                         [("steps 25 until 25", [1]), ("one schedule", [1, 2])])
        self.assertNotIn("repeat", {remark["kind"] for remark in compared["remarks"]})

    def test_overwrite_removes_only_files_of_a_run(self):
        run = self.train("other", merged(KEPT, {"train": {"seed": 2}, "data": {"val_fraction": 0.2}}))
        self.write("other/weights/notes.txt", "mine")
        os.mkdir(run.file("plots"))
        self.train("other", {"data": {"val_fraction": 0}}, "--overwrite")
        os.remove(run.file("weights/notes.txt"))
        for folder in ("weights", "plots"):  # which hold nothing else
            os.rmdir(run.file(folder))
        self.assert_same_results(run, self.train("fresh", {"data": {"val_fraction": 0}}))


class Weights(ResumeTest):
    """Weights of a step on the way."""

    def test_commands_take_those_that_were_kept(self):
        run = self.train("run", KEPT)
        self.assertEqual(set(os.listdir(run.file("weights"))), {f"step_{step}.safetensors" for step in KEPT_STEPS})
        for step in KEPT_STEPS:
            evaluated = json.loads(self.normscope("eval", "run", "--step", str(step), "--json").stdout)
            self.assertEqual(evaluated["step"], step)
        self.normscope("probe", "tiny.json", "--out", "fresh")
        self.normscope("probe", "tiny.json", "--out", "kept", "--from", "run", "--step", "0")
        fresh, kept = (Run(self.path(out, "seed-1")).rows("layers.csv") for out in ("fresh", "kept"))
        self.assertEqual(fresh, kept)
        self.assertNotEqual(*(self.call("sample", "run", "--step", step).stdout for step in ("0", "21")))

    def test_they_have_the_branch_factors_of_their_step(self):
        """Step 20 of T = 20: block 1's branches are whole, those of block 2 are halved, as by scales of 1 and 0.5."""
        run = self.train("warm-up", {"train": {"steps": 20, "branch_warmup_steps": 20}})
        config = run.file("config.json")
        scales = {f"blocks.{block}.{sublayer}_scale": np.full(1, 1 / (block + 1), np.float32)
                  for block in (0, 1) for sublayer in ("attn", "ffn")}
        write_safetensors(self.path("scaled.safetensors"), {**run.tensors(), **scales})
        self.normscope("probe", config, "--from", "warm-up", "--out", "of-the-step")
        self.normscope("probe", config, "--from", "scaled.safetensors", "--out", "scaled",
                       "--set", "train.branch_warmup_steps=0", "--set", "model.branch_scale_learned=scalar")
        result, expected = (Run(self.path(name, "seed-1")) for name in ("of-the-step", "scaled"))
        self.assertEqual(result.rows("layers.csv"), expected.rows("layers.csv"))
        self.assertEqual(result.summary["final_train_loss"], expected.summary["final_train_loss"])


if __name__ == "__main__":
    unittest.main()
