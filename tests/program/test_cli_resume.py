#!/usr/bin/python3
"""A run that was interrupted and then resumed equals one that was never disturbed, bit for bit; a folder that holds a
run is safe from everything that was not asked for. Kills and disks: test_crash.py."""

import json
import os
import re
import resource
import signal
import unittest

import numpy as np
from cli import (LOGS, TEXT, TINY, CliTest, Run, environment, fnv1a, with_metadata,
                 write_safetensors)

ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "log": {"every": 1}, "eval": {"every": 0}}
RESULTS = ("model.safetensors", "best.safetensors", "checkpoint.safetensors", "config.json", "sample.txt")


class ResumeTest(CliTest):
    def half_done(self, out="run", changes=None):
        """A run that failed after its 25 steps, with the checkpoint of step 20."""
        run = Run(self.path(out))
        blocker = run.file("model.safetensors")  # a folder, which no file replaces
        os.makedirs(blocker)
        config = self.normscope("config", self.config(changes)).stdout
        self.write(run.file("config.json"), config)  # with it the folder is that of a run
        self.train(out, changes, "--resume", code=1)
        os.rmdir(blocker)
        self.assertEqual(run.metadata("checkpoint.safetensors")["step"], "20")
        return run

    def resume(self, run, *options, config="tiny.json", **expectations):
        return self.normscope("train", config, "--out", run.path, "--resume", *options, **expectations)

    def resume_refused(self, run, *options, **expectations):
        return self.refused_untouched("train", "tiny.json", "--out", run.path, "--resume", *options, **expectations)


class Interruption(ResumeTest):
    def interrupt(self, out, number, config, *options):
        """Starts or resumes a run and sends it a signal in the middle; its exit code and stderr."""
        process = self.start("train", config, "--out", out, *options)
        self.wait_for_rows(self.path(out, "metrics.csv"), 5, process)
        return self.end(process, number)

    def test_signals_save_the_run_and_say_how_to_go_on(self):
        self.config(ENDLESS | {"eval": {"every": 7, "batches": 1}})
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores hangups, and what this test starts would too
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
                       signal.SIGALRM, signal.SIGVTALRM):  # of terminals, schedulers, limits and timers
            run = Run(self.path("it's " + signal.Signals(number).name))
            code, stderr = self.interrupt(run.path, number, "tiny.json")
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
            self.assertEqual(run.summary["status"], "done")
            self.normscope("train", "tiny.json", "--out", "whole", "--overwrite", sets)
            self.assert_same_results(run, Run(self.path("whole")), files=RESULTS)

    def test_a_second_writer_is_refused_at_once(self):
        process = self.start("train", self.config(ENDLESS), "--out", "run", "--quiet")
        self.wait_for_rows(self.path("run", "metrics.csv"), 3, process)
        self.config(name="short.json")
        for option in ([], ["--resume"], ["--overwrite"]):
            self.refused("train", "short.json", "--out", "run", *option, code=1, says=["another process"])
        self.assertEqual(self.end(process, signal.SIGINT)[0], 130)


class Resume(ResumeTest):
    def setUp(self):
        super().setUp()
        self.whole = self.train("whole")

    def test_rows_past_the_checkpoint_are_dropped_torn_or_lost(self):
        run = self.half_done()
        self.assertEqual(run.rows("metrics.csv")[-1]["step"], "25")
        for name in LOGS:
            lost = run.bytes(name).index(b"\n25,") + 1  # a power failure leaves zeros there
            self.write(run.file(name), run.bytes(name)[:lost] + bytes(9) + run.bytes(name)[lost + 9:] + b"26,1664,3.9")
        self.write(f"run/.normscope-{fnv1a(b'best.safetensors'):016x}-0123abcd", "left by a kill")
        self.resume(run)
        self.assert_same_results(run, self.whole, files=RESULTS)
        self.assertEqual(sorted(os.listdir(run.path)), sorted(os.listdir(self.whole.path)))

    def test_within_the_branch_warm_up(self):
        changes = {"train": {"branch_warmup_steps": 40}, "eval": {"batches": 0}}
        whole = self.train("whole-warm-up", changes)
        run = self.half_done("half", changes)
        losses = {row["step"]: float(row["val_loss"]) for row in run.rows("metrics.csv") if row["val_loss"]}
        evaluated = json.loads(self.normscope("eval", run.file("checkpoint.safetensors"), "--json").stdout)
        self.assertEqual((evaluated["step"], evaluated["nats"]["model"]), (20, losses["20"]))
        self.resume(run)
        self.assert_same_results(run, whole, files=RESULTS)

    def test_a_probe_of_weights_takes_the_branch_factors_of_their_step(self):
        """Step 20 of T = 20: block 1's branches are whole, those of block 2 are halved, as by scales of 1 and 0.5."""
        run = self.train("warm-up", {"train": {"steps": 20, "branch_warmup_steps": 20}})
        config = run.file("config.json")
        scales = {f"blocks.{block}.{sublayer}_scale": np.full(1, 1 / (block + 1), np.float32)
                  for block in (0, 1) for sublayer in ("attn", "ffn")}
        write_safetensors(self.path("scaled.safetensors"), {**run.tensors(), **scales})
        self.normscope("probe", config, "--from", "warm-up", "--out", "of-the-step")
        self.normscope("probe", config, "--from", "scaled.safetensors", "--out", "scaled", "--set",
                       "train.branch_warmup_steps=0",
                       "--set", "model.branch_scale_learned=scalar")
        result, expected = (Run(self.path(name, "seed-1")) for name in ("of-the-step", "scaled"))
        self.assertEqual(result.rows("layers.csv"), expected.rows("layers.csv"))
        self.assertEqual(result.summary["final_train_loss"], expected.summary["final_train_loss"])

    def test_without_a_checkpoint_it_starts_at_the_beginning_and_says_so(self):
        run = self.half_done()
        os.remove(run.file("checkpoint.safetensors"))
        for run in (run, Run(self.path("new"))):
            self.assertIn("step 0", self.resume(run).stdout)
            self.assert_same_results(run, self.whole, files=RESULTS)

    def test_seconds_go_on(self):
        """After a resume they begin where those of the checkpoint's step were, by the mean time of a step until the
        last row."""
        run = self.half_done("slow", {"log": {"every": 9}})
        header, *rows = run.bytes("metrics.csv").decode().splitlines()
        column = header.split(",").index("seconds")
        cells = [row.split(",") for row in rows]
        for row in cells:
            row[column] = str(100 * int(row[0]))
        self.write("slow/metrics.csv", "\n".join([header, *map(",".join, cells)]) + "\n")
        self.resume(run, "--set", "log.every=1")
        for row in run.rows("metrics.csv"):
            step = int(row["step"])
            self.assertAlmostEqual(float(row["seconds"]), 100 * min(step, 20), delta=20)

    def test_what_a_finished_run_lacks_is_written_again(self):
        before, summary = self.whole.contents(), self.whole.summary
        for damaged in ("", '{"status": "done"', '{"status": "running"}'):
            self.write("whole/summary.json", damaged)
            for name in ("model.safetensors", "sample.txt"):
                os.remove(self.whole.file(name))
            self.assertIn("finishing", self.resume(self.whole).stdout)
            self.assertEqual({**self.whole.contents(), "summary.json": before["summary.json"]}, before)
            for key in ("status", "final_val_loss", "4-gram", "best_step"):
                self.assertEqual(self.whole.summary[key], summary[key])
        half = self.half_done()
        self.resume_refused(half, "--set", "train.steps=20", code=1, says=["raise train.steps"])

    def test_without_the_best_weights_the_best_starts_anew(self):
        run = self.half_done(changes={"eval": {"every": 10}})
        os.remove(run.file("best.safetensors"))
        result = self.call("train", "tiny.json", "--out", "run", "--resume")
        self.assertRegex(result.stderr, r"^note: \S*best\.safetensors is missing; [^\n]*\n$")
        self.assertEqual((result.returncode, run.summary["best_step"], run.metadata("best.safetensors")["step"]),
                         (0, 25, "25"))

    def test_logs_that_are_not_of_one_trajectory_are_an_error_that_changes_nothing(self):
        run = self.half_done()
        self.write("run/summary.json", "{}")
        for name in LOGS:
            sound = run.bytes(name)
            tenth, twentieth = sound.index(b"\n10,") + 1, sound.index(b"\n20,") + 1
            for damaged, says in ((sound.replace(b"step,", b"step,older,", 1), "the header is"),
                                  (sound.replace(b"\n10,", b"\n10;", 1), "got"), (sound + sound[:twentieth], "got"),
                                  (sound[:tenth] + sound[twentieth:], "expected a row of step 10")):
                self.write(run.file(name), damaged)
                for options in ((), ("--set", "log.layers_every=0")):
                    if options and "expected a row" in says:
                        continue  # the keys say no longer which rows are due
                    with self.subTest(f"{name} {says} {options}"):
                        self.resume_refused(run, *options, code=1, says=[f"{name}: ", says])
            self.write(run.file(name), sound)
        os.remove(run.file("layers.csv"))
        self.resume(run, "--set", "train.steps=45", "--set", "log.every=4", "--set", "checkpoint.every=40")
        self.resume(run, "--set", "train.steps=50", "--set", "log.every=4", "--set", "checkpoint.every=40")
        self.assertEqual([row["step"] for row in run.rows("metrics.csv")][9:14], ["10", "20", "24", "28", "30"])
        self.assertEqual(run.summary["logged_since"], 20)

    def test_a_finished_run_is_left_alone(self):
        before = self.whole.contents()
        self.assertIn("is finished", self.resume(self.whole).stdout)
        self.assertIn("is finished (step 25; train.steps asks for no more than 24);",
                      self.resume(self.whole, "--set", "train.steps=24").stdout)
        self.assertEqual(self.whole.contents(), before)
        self.assertIn("schedule", self.resume(self.whole, "--set", "train.steps=40").stdout)
        longer = self.train("longer", {"train": {"steps": 40}})
        self.assertEqual(*((run.summary["steps"], run.summary["status"], run.rows("metrics.csv")[-1]["lr"])
                           for run in (self.whole, longer)))

    def test_a_run_without_room_for_its_config_starts_when_there_is_some(self):
        # ThreadSanitizer begins with a larger file of its own, unless there is no place for it.
        result = self.normscope("train", "tiny.json", "--out", "run", code=1, env=environment(TMPDIR="/dev/null"),
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)))
        self.assertRegex(result.stderr, r"^\[file\] run/config.json: cannot be written: .*\n$")
        run = Run(self.path("run"))
        self.resume(run)
        self.assert_same_results(run, self.whole, files=RESULTS)


class Changes(ResumeTest):
    def test_a_damaged_checkpoint_is_refused(self):
        run = self.train("run")
        sound = run.bytes("checkpoint.safetensors")
        flipped = [sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1:]
                   for at in (0, 7, len(sound) // 2, len(sound) - 1)]
        for content in (b"", sound[:7], sound[:-1], sound + b"\0", run.bytes("metrics.csv"), *flipped):
            self.write(run.file("checkpoint.safetensors"), content)
            self.resume_refused(run, code=1, says=["[safetensors] ", "run/checkpoint.safetensors"])
        for key, values in {"normscope": (None, "2"), "config": (None, "[]", "{"), "vocab": (None, "[]", "[10,32]"),
                            "corpus": (None, "f" * 16), "step": (None, "-1", "26", "2.5", " 1"),
                            "trajectory_hash": (None, "f" * 17), "best_val_loss": ("1,5",), "best_step": ("x",),
                            "skipped": ("x",), "updates": (None,), "train_loss_max": (None,),
                            "skipped_in_a_row": (None,), "branch_share": ("x",)}.items():
            for value in values:
                with self.subTest(f"{key} {value!r}"):
                    self.write(run.file("checkpoint.safetensors"), with_metadata(sound, {key: value}))
                    self.resume_refused(run, code=1, says=["checkpoint.safetensors"])
        self.write(run.file("checkpoint.safetensors"), with_metadata(sound, {"something_new": "is ignored"}))
        self.assertIn("is finished", self.resume(run).stdout)

    def test_a_text_that_moved_with_its_run_is_found(self):
        os.makedirs(self.path("P/data"))
        text = self.write("P/data/words.txt", TEXT)
        self.train("P/runs/run", {"data": {"path": text}})
        os.rename(self.path("P"), self.path("Q"))
        self.refused("train", "tiny.json", "--out", "new", says=[f"no such file: {text} (tiny.json)"])
        self.refused("train", "Q/runs/run", says=["Q/runs/run: is a folder", "Q/runs/run/config.json"])
        os.rename(self.path("Q/runs/run"), self.path("run"))
        os.rename(self.path("Q/data/words.txt"), self.path("other.txt"))
        self.refused("train", "--resume", "run", says=["no such file", "--set data.path=FILE"])
        self.normscope("train", "--resume", "run", "--set", "train.steps=28", "--set", "data.path=other.txt")
        self.write("other.txt", TEXT + "x")
        for command in (["train", "--resume"], ["eval"]):
            self.refused(*command, "run", code=1, says=["another text than", "other.txt (hash "])

    def test_other_keys_are_refused_by_name(self):
        """In the folder's config, and in a sound checkpoint of another run."""
        other = self.train("other", {"train": {"seed": 7, "lr": 0.5, "steps": 40}, "log": {"every": 5}})
        run = self.half_done()
        for keys in ("train.lr=0.5", "model.norm_placement=post", "train.seed=9"):
            refused = self.resume_refused(run, "--set", keys, "--set", "log.every=3",
                                             says=[keys.split("=")[0]])
            self.assertNotIn("log.every", refused.stderr)
        self.write(run.file("checkpoint.safetensors"), other.bytes("checkpoint.safetensors"))
        refused = self.resume_refused(run, says=["checkpoint.safetensors", "train.seed (7 -> 1)", "train.lr"])
        self.assertNotRegex(refused.stderr, "train.steps|log.every")

    def test_allowed_keys_change_and_the_weights_stay_the_same(self):
        whole, run = self.train("whole"), self.half_done()
        lucky = with_metadata(run.bytes("checkpoint.safetensors"), {"best_val_loss": "0.5"})
        self.write(run.file("checkpoint.safetensors"), lucky)
        output = self.resume(run, "--set", "log.every=1", "--set", "log.layers_every=0", "--set", "eval.every=3",
                             "--set",
                           "eval.batches=0", "--set", "checkpoint.every=2", "--set", "train.threads=2", "--set",
                           "train.on_nonfinite=skip", "--set", "name=other").stdout
        self.assertNotIn("schedule", output)
        rows = run.rows("metrics.csv")
        self.assertEqual([int(row["step"]) for row in rows], [*range(1, 11), 20, 21, 22, 23, 24, 25])
        self.assertEqual(run.summary["trajectory_hash"], whole.summary["trajectory_hash"])
        for name, tensor in whole.tensors().items():
            self.assertEqual(run.tensors()[name].tobytes(), tensor.tobytes(), name)
        for name in LOGS[1:]:  # rows past the checkpoint go from logs that are off now too
            self.assertEqual(run.rows(name)[-1]["step"], "20")
        # Evaluations before the resume had other windows, and do not compete.
        self.assertEqual(run.summary["best_val_loss"],
                         min(float(row["val_loss"]) for row in rows[-5:] if row["val_loss"]))


class Kept(ResumeTest):
    CHANGES = {"checkpoint": {"keep_every": 7}, "log": {"every": 1}}
    STEPS = [0, 1, 2, 4, 7, 8, 14, 16, 21]

    def weights(self, run):
        return Run(run.file("weights")).contents()

    def test_weights_along_the_way_are_those_of_their_steps(self):
        whole, run = self.train("whole", self.CHANGES), self.half_done(changes=self.CHANGES)
        kept = self.weights(run)
        self.assertEqual(sorted(kept), sorted(f"step_{step}.safetensors" for step in self.STEPS))
        self.write("run/weights/notes.txt", "mine")
        self.write("run/weights/step_24.safetensors", "of a later step")
        self.resume(run)
        os.remove(run.file("weights/notes.txt"))
        self.assertEqual(self.weights(run), self.weights(whole))
        self.assertEqual(self.weights(run), kept)
        for step in self.STEPS:
            evaluated = json.loads(self.normscope("eval", "run", "--step", str(step), "--json").stdout)
            self.assertEqual(evaluated["step"], step)
        self.normscope("probe", "tiny.json", "--out", "fresh")
        self.normscope("probe", "tiny.json", "--out", "kept", "--from", "run", "--step", "0")
        fresh, kept = (Run(self.path(out, "seed-1")).rows("layers.csv") for out in ("fresh", "kept"))
        self.assertEqual(fresh, kept)
        self.assertNotEqual(*(self.call("sample", "run", "--step", step).stdout for step in ("0", "21")))
        self.refused("eval", "run", "--step", "5", says=["it has those of steps 0, 1, 2, 4, 7"])

    def test_overwrite_removes_them_and_no_command_replaces_one(self):
        run = self.train("run", self.CHANGES)
        weights = run.file("weights/step_8.safetensors")
        self.refused_untouched("train", "tiny.json", "--out", run.path, "--overwrite", "--from", weights,
                               says=["is an input"])
        self.refused("probe", "tiny.json", "--dump", weights, "--overwrite", says=["a run's own file"])
        self.train("run", {}, "--overwrite")
        self.assertNotIn("weights", os.listdir(run.path))


class Past(ResumeTest):
    """A run whose train.steps a resume has changed."""

    def prolonged(self, out, changes, *steps):
        run = self.train(out, changes)
        for count in steps:
            self.normscope("train", "--resume", out, "--set", f"train.steps={count}")
        return run.summary.get("past")

    def test_it_is_kept_shown_and_a_difference(self):
        past = [{"step": 25, "train.steps": 25}, {"step": 30, "train.steps": 30}]
        self.assertEqual(self.prolonged("run", {}, 30), past[:1])
        self.assertEqual(self.prolonged("again", {}, 30, 40), past)
        self.assertRegex(self.normscope("config", "again", "--origin").stdout,
                         r"train\.steps +40 +again/config\.json; 25 until step 25, 30 until step 30\n")
        for out, seed in (("fresh", 1), ("other", 2)):
            self.train(out, {"train": {"steps": 30, "seed": seed}})
        compared = json.loads(self.script("compare.py", "run", "fresh", "other", "--json").stdout)
        self.assertEqual([(entry["label"].split(" · ")[-1], entry["seeds"]) for entry in compared["runs"]],
                         [("steps 25 until 25", [1]), ("one schedule", [1, 2])])
        self.assertNotIn("repeat", {remark["kind"] for remark in compared["remarks"]})

    def test_rates_that_do_not_depend_on_the_steps_leave_none(self):
        for schedule in ({"schedule": "constant"}, {"warmup_steps": 25},
                         {"schedule": "wsd", "cooldown": 0.1}):
            out = schedule.get("schedule", "warm-up")
            run = self.half_done(out, {"train": {**schedule, "steps": 25}})
            self.normscope("train", "--resume", out, "--set", "train.steps=60")
            self.assertNotIn("past", run.summary)
            whole = self.train("whole-" + out, {"train": {**schedule, "steps": 60}})
            self.assert_same_results(run, whole, files=RESULTS)


class Safety(ResumeTest):
    def test_an_existing_run_is_refused_untouched(self):
        self.train("run")
        self.refused_untouched("train", "tiny.json", "--out", "run", says=["--resume", "--overwrite", "--out"])

    def test_overwrite_removes_only_files_of_a_run(self):
        run = self.train("run", {"train": {"seed": 2}, "data": {"val_fraction": 0.2}})
        self.write("run/notes.txt", "mine")
        os.mkdir(run.file("plots"))
        self.train("run", {"data": {"val_fraction": 0}}, "--overwrite")
        self.assertLessEqual({"notes.txt", "plots"}, set(os.listdir(run.path)))
        self.assertNotIn("best.safetensors", os.listdir(run.path), "of the run before")
        fresh = self.train("fresh", {"data": {"val_fraction": 0}})
        self.assert_same_results(run, fresh, files=("model.safetensors", "checkpoint.safetensors"))

    def test_a_folder_of_another_program_is_refused_untouched(self):
        """config.json and model.safetensors are Hugging Face's names too; and a config that a person wrote is no
        run's."""
        self.config()
        for name, config in {"hugging-face": '{"architectures": ["GPT2LMHeadModel"]}', "nothing": "",
                             "by-hand": json.dumps(TINY),
                             "logs-alone": None}.items():
            for folder in (name, f"{name}/seed-1"):
                os.makedirs(self.path(folder))
                files = {"metrics.csv": b"my own numbers"} if config is None else \
                    {"config.json": config.encode(), "model.safetensors": b"WEIGHTS"}
                for file, content in files.items():
                    self.write(f"{folder}/{file}", content)
            for command in (["train"], ["train", "--overwrite"], ["train", "--resume"], ["probe"],
                            ["probe", "--overwrite"]):
                refused = self.refused_untouched(command[0], "tiny.json", "--out", name, *command[1:],
                                                 says=["no run", "--out DIR"])
                self.assertNotIn("--overwrite", refused.stderr)


if __name__ == "__main__":
    unittest.main()
