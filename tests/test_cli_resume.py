#!/usr/bin/python3
"""A run that was interrupted, killed or damaged and then resumed equals one that was never disturbed, bit for bit; and
a folder that holds a run is safe from everything that was not asked for."""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from cli import BINARY, LOGS, TEXT, TINY, CliTest, Run, environment, with_metadata

LONG = {"train": {"steps": 800, "schedule": "linear", "warmup_steps": 50}, "eval": {"every": 100, "batches": 1},
        "log": {"every": 1, "layers_every": 50}, "checkpoint": {"every": 100}}
ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "log": {"every": 1}, "eval": {"every": 0}}
RESULTS = ("model.safetensors", "best.safetensors", "checkpoint.safetensors", "config.json", "sample.txt")


class ResumeTest(CliTest):
    def half_done(self, out="run", changes=None):
        """A run that failed after its 25 steps, with the checkpoint of step 20."""
        run = Run(self.path(out))
        blocker = run.file("model.safetensors.normscope-tmp")
        os.makedirs(os.path.join(blocker, "not-empty"))
        self.train(out, changes, code=1)
        shutil.rmtree(blocker)
        self.assertEqual(run.metadata("checkpoint.safetensors")["step"], "20")
        return run

    def resume(self, run, *options, config="tiny.json", **expectations):
        return self.normscope("train", config, "--out", run.path, "--resume", *options, **expectations)

    def append(self, path, content):
        with open(path, "ab") as file:
            file.write(content)


class Interruption(ResumeTest):
    def interrupt(self, out, number, after_rows, config, *options):
        """Starts or resumes a run and sends it a signal in the middle; its exit code and stderr."""
        metrics = self.path(out, "metrics.csv")
        process = self.start("train", config, "--out", out, *options)
        self.wait_for_rows(metrics, after_rows, process)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        return process.returncode, stderr

    def test_signals_save_the_run_and_say_how_to_go_on(self):
        whole = self.train("whole", LONG)
        for number in (signal.SIGINT, signal.SIGTERM):
            name = "it's " + signal.Signals(number).name
            for attempt in range(10):  # a busy machine may let the run finish before the signal is sent
                code, stderr = self.interrupt(f"{name}-{attempt}", number, 5, "tiny.json")
                if code != 0:
                    break
            run = Run(self.path(f"{name}-{attempt}"))
            self.assertEqual(code, 130, stderr)
            stopped = run.summary["steps"]
            said = re.fullmatch(rf"interrupted after step {stopped}; go on with: (.*)\n", stderr)
            self.assertTrue(said, stderr)
            self.assertEqual(run.summary["status"], "interrupted")
            self.assertEqual(run.metadata("checkpoint.safetensors")["step"], str(stopped))
            self.assertEqual(run.rows("metrics.csv")[-1]["step"], str(stopped))
            self.assertNotIn("model.safetensors", os.listdir(run.path))
            pasted = subprocess.run(["sh", "-c", said[1]], cwd=self.folder, env=environment(), capture_output=True,
                                    encoding="utf-8", check=True)
            self.assertIn(f"after step {stopped}", pasted.stdout)
            self.assertEqual(run.summary["status"], "done")
            self.assert_same_results(run, whole, files=RESULTS)

    def test_a_run_folder_stands_for_its_config(self):
        whole = self.train("whole")
        run = self.half_done("half", {"train": {"lr": 2e-3}})
        os.remove(self.path("tiny.json"))
        self.normscope("train", "--resume", run.path, "--set", "train.lr=0.002", "--quiet")
        self.assertEqual(run.summary["steps"], 25)
        self.assertNotEqual(run.bytes("model.safetensors"), whole.bytes("model.safetensors"))
        self.refused("train", "half", says=["half: is a folder", "half/config.json"])
        self.refused("train", "--resume", self.folder, says=["config.json", "there is no file"])

    def test_killed_again_and_again(self):
        whole = self.train("whole", LONG)
        draw = random.Random(1)
        run = Run(self.path("run"))
        for at in sorted(draw.sample(range(20, 700), 5)):
            process = self.start("train", "tiny.json", "--out", "run", "--resume")
            self.wait_for_rows(run.file("metrics.csv"), at, process)
            time.sleep(draw.uniform(0, 0.02))
            process.kill()
            process.wait()
        self.resume(run)
        self.assert_same_results(run, whole, files=RESULTS)
        self.assertEqual(run.summary["final_val_loss"], whole.summary["final_val_loss"])

    def test_interrupted_without_periodic_checkpoints(self):
        config = self.config(ENDLESS)
        code, stderr = self.interrupt("run", signal.SIGINT, 5, config, "--quiet")
        self.assertEqual(code, 130)
        self.assertIn("--resume", stderr)
        run = Run(self.path("run"))
        steps = run.summary["steps"] + 7
        said = self.resume(run, "--set", f"train.steps={steps}")
        self.assertIn("schedule", said.stdout)
        self.assertEqual(run.summary["steps"], steps)
        whole = self.train("whole", ENDLESS, "--set", f"train.steps={steps}")
        self.assertEqual(run.bytes("model.safetensors"), whole.bytes("model.safetensors"))
        self.assertEqual(run.without_timing(), whole.without_timing())


class Damage(ResumeTest):
    def setUp(self):
        super().setUp()
        self.whole = self.train("whole")

    def test_rows_past_the_checkpoint_are_dropped(self):
        run = self.half_done()
        self.assertEqual(run.rows("metrics.csv")[-1]["step"], "25")
        self.resume(run)
        self.assert_same_results(run, self.whole, files=RESULTS)

    def test_a_torn_last_line_is_dropped(self):
        run = self.half_done()
        for name in LOGS:
            self.append(run.file(name), b"26,1664,3.9")
        self.resume(run)
        self.assert_same_results(run, self.whole, files=RESULTS)

    def test_no_checkpoint_starts_at_the_beginning_and_says_so(self):
        run = self.half_done()
        os.remove(run.file("checkpoint.safetensors"))
        self.assertIn("step 0", self.resume(run).stdout)
        self.assert_same_results(run, self.whole, files=RESULTS)

    def test_no_folder_starts_at_the_beginning_and_says_so(self):
        run = Run(self.path("new"))
        self.assertIn("step 0", self.resume(run).stdout)
        self.assert_same_results(run, self.whole, files=RESULTS)

    def test_a_finished_run_is_left_alone(self):
        before = self.whole.contents()
        self.assertIn("is finished", self.resume(self.whole).stdout)
        steps = self.whole.summary["steps"]
        self.assertIn(f"is finished (step {steps}; train.steps asks for no more than {steps - 1});",
                      self.resume(self.whole, "--set", f"train.steps={steps - 1}").stdout)
        self.assertEqual(self.whole.contents(), before)


    def test_a_run_that_stopped_in_its_last_act_is_not_finished(self):
        for last in ("model.safetensors", "sample.txt", "summary.json"):
            run = self.half_done("stopped-" + last)
            os.mkdir(run.file(last))  # cannot be replaced by a file: the run fails there
            self.resume(run, code=1)
            os.rmdir(run.file(last))
            self.assertNotIn("finished", self.resume(run).stdout)
            self.assert_same_results(run, self.whole, files=RESULTS)
            self.assertEqual(run.summary["final_val_loss"], self.whole.summary["final_val_loss"])


class OtherCheckpoint(ResumeTest):
    """A sound file that is not this run's checkpoint is no place to go on from, nor a reason to take the one before."""

    def refused_untouched(self, run, content, **expectations):
        before = run.contents()
        self.write(run.file("checkpoint.safetensors"), content)
        refused = self.refused("train", "tiny.json", "--out", run.path, "--resume", **expectations)
        self.assertEqual(run.contents(), before | {"checkpoint.safetensors": content})
        self.write(run.file("checkpoint.safetensors"), before["checkpoint.safetensors"])
        return refused

    def test_another_config_is_refused_by_its_keys(self):
        other = self.train("other", {"train": {"seed": 7, "lr": 0.5, "steps": 40}, "model": {"activation": "relu"},
                                     "log": {"every": 5}}).bytes("checkpoint.safetensors")
        run = self.train("run")
        refused = self.refused_untouched(run, other, says=["checkpoint.safetensors", "train.seed (7 -> 1)", "train.lr",
                                                           'model.activation ("relu" -> "gelu")'])
        for allowed in ("train.steps", "log.every"):
            self.assertNotIn(allowed, refused.stderr)

    def test_metadata_that_cannot_be_is_refused(self):
        run = self.train("run")
        sound = run.bytes("checkpoint.safetensors")
        config = json.loads(run.metadata("checkpoint.safetensors")["config"])
        wrong = {
            "normscope": (None, "", "2", "1.0", "-1"),
            "config": (None, "", "[]", "null", "{", "\u0000", json.dumps({**config, "more": 1})),
            "vocab": (None, "", "[]", "[10,32]", "[32,10]", "{}", "[-1]"),
            "corpus": (None, "", "0", "x" * 16, "f" * 16, "f" * 17),
            "train_characters": ("0", "", "5401", "5399"),
            "step": (None, "", "0", "-5", "26", "9" * 30, "2.5", " 1", "1 ", "nan"),
            "trajectory_hash": (None, "", "0x12", "f" * 17),
            "best_val_loss": ("", "-", "1,5"),
            "best_step": (None, "", "x"),
            "skipped": (None, "x"),
            "skipped_in_a_row": (None, "x"),
            "branch_share": ("x",),
        }
        tried = 0
        for key, values in wrong.items():
            for value in values:
                with self.subTest(f"{key} {value!r}"):
                    self.refused_untouched(run, with_metadata(sound, {key: value}), code=1, says=["checkpoint.safetensors"])
                    tried += 1
        self.assertGreater(tried, 40)
        self.write(run.file("checkpoint.safetensors"), with_metadata(sound, {"something_new": "is ignored"}))
        self.assertIn("is finished", self.resume(run).stdout)

    def test_text_that_moves_to_the_validation_file_is_seen(self):
        text, moved = TEXT[:5000], TEXT[5000:5500]
        changes = {"data": {"path": "train.txt", "val_path": "val.txt"}}
        self.write("train.txt", text + moved)
        self.write("val.txt", TEXT[5500:])
        run = self.half_done(changes=changes)
        self.write("train.txt", text)
        self.write("val.txt", moved + TEXT[5500:])
        self.refused_untouched(run, run.bytes("checkpoint.safetensors"), code=1, says=["5500, now 5000"])
        warned = self.call("eval", run.file("best.safetensors"))
        self.assertRegex(warned.stderr, r"^\[eval\] the corpus has changed .*5500, now 5000\n$")
        # A checkpoint of a version that did not say where the text for training ended.
        self.write(run.file("checkpoint.safetensors"),
                   with_metadata(run.bytes("checkpoint.safetensors"), {"train_characters": None, "branch_share": None}))
        self.resume(run)
        self.assertIsNone(run.summary["branch_share"])


class FullDisk(ResumeTest):
    def test_a_write_that_fails_is_reported_and_leaves_whole_rows(self):
        whole = self.train("whole", {"log": {"layers_every": 1}})
        limit = 20_000  # bytes a file; the logs want more

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.assertGreater(len(whole.bytes("layers.csv")), limit)
        # ThreadSanitizer begins with a larger file of its own, unless there is no place for it.
        result = subprocess.run([BINARY, "train", "tiny.json", "--out", "run"], cwd=self.folder,
                                env=environment(TMPDIR="/dev/null"), preexec_fn=limit_files, capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"^\[csv\] run/(layers|params|heads)\.csv: cannot be written: .*\n$")
        run = Run(self.path("run"))
        for name in LOGS:
            self.assertTrue(run.bytes(name).endswith(b"\n"), name)
        self.resume(run)
        self.assert_same_results(run, whole, files=RESULTS)


class ChangedConfig(ResumeTest):
    def test_other_keys_are_refused_by_name_and_nothing_changes(self):
        run = self.half_done()
        before = run.contents()
        refused = self.refused("train", "tiny.json", "--out", "run", "--resume", "--set", "train.lr=0.5", "--set",
                               "model.norm_placement=post", "--set", "train.seed=9", "--set", "log.every=3",
                               says=["train.lr", "model.norm_placement", "train.seed"])
        self.assertNotIn("log.every", refused.stderr)
        self.assertEqual(run.contents(), before)

    def test_rows_past_the_checkpoint_go_from_logs_that_are_off_now_too(self):
        changes = {"log": {"layers_every": 5}}
        whole, run = self.train("whole", changes), self.half_done(changes=changes)
        for name in LOGS[1:]:
            self.assertEqual(run.rows(name)[-1]["step"], "25")
        self.resume(run, "--set", "log.layers_every=0")
        for name in LOGS[1:]:
            self.assertEqual(run.rows(name), [row for row in whole.rows(name) if int(row["step"]) <= 20])

    def test_allowed_keys_change_and_the_weights_stay_the_same(self):
        whole, run = self.train("whole"), self.half_done()
        said = self.resume(run, "--set", "log.every=1", "--set", "log.layers_every=0", "--set", "eval.every=3", "--set",
                           "eval.batches=0", "--set", "checkpoint.every=2", "--set", "train.threads=2", "--set",
                           "train.on_nonfinite=skip", "--set", "name=other").stdout
        self.assertNotIn("schedule", said)
        self.assertEqual([int(r["step"]) for r in run.rows("metrics.csv")], [1, 10, 20, 21, 22, 23, 24, 25])
        self.assertEqual(run.summary["trajectory_hash"], whole.summary["trajectory_hash"])
        for name, tensor in whole.tensors().items():
            self.assertEqual(run.tensors()[name].tobytes(), tensor.tobytes(), name)

    def test_more_steps_prolong_a_finished_run_and_the_new_schedule_is_said(self):
        run = self.train("run")
        said = self.resume(run, "--set", "train.steps=40").stdout
        self.assertIn("train.steps", said)
        self.assertIn("schedule", said)
        self.assertEqual((run.summary["steps"], run.summary["status"]), (40, "done"))
        # Cosine over 40 steps from step 26 on.
        whole = self.train("whole", {"train": {"steps": 40}})
        self.assertEqual(run.rows("metrics.csv")[-1]["lr"], whole.rows("metrics.csv")[-1]["lr"])

    def test_a_changed_corpus_is_a_failure(self):
        run = self.half_done()
        before = run.contents()
        self.append(self.path("text.txt"), b"More text.")
        self.refused("train", "tiny.json", "--out", "run", "--resume", code=1, says=["corpus"])
        self.assertEqual(run.contents(), before)

    def test_resume_and_overwrite_exclude_each_other(self):
        self.refused("train", self.config(), "--resume", "--overwrite", says=["--resume", "--overwrite"])


class Safety(ResumeTest):
    def test_an_existing_run_is_refused_untouched(self):
        run = self.train("run")
        before = run.contents()
        self.refused("train", "tiny.json", "--out", "run", says=["--resume", "--overwrite", "--out"])
        self.assertEqual(run.contents(), before)

    def test_overwrite_removes_only_files_of_a_run(self):
        run = self.train("run", {"train": {"seed": 2}, "data": {"val_fraction": 0.2}})
        self.write("run/notes.txt", "mine")
        self.write("run/layers.csv.bak", "mine too")
        os.mkdir(run.file("plots"))
        self.train("run", {"data": {"val_fraction": 0}}, "--overwrite")
        left = set(os.listdir(run.path))
        self.assertLessEqual({"notes.txt", "layers.csv.bak", "plots"}, left)
        self.assertNotIn("best.safetensors", left, "of the run before")
        self.assertEqual(run.bytes("notes.txt"), b"mine")
        fresh = self.train("fresh", {"data": {"val_fraction": 0}})
        self.assert_same_results(run, fresh, files=("model.safetensors", "checkpoint.safetensors"))

    def test_a_folder_of_another_program_is_refused_untouched(self):
        """config.json and model.safetensors are Hugging Face's names too; and a config that a person wrote is no run's."""
        resolved = self.normscope("config", self.config()).stdout
        for name, config in {
            "hugging-face": '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}', "empty": "{}", "list": "[1]",
            "no-json": "weights of a friend", "nothing": "", "by-hand": json.dumps(TINY),
            "unnamed": resolved.replace('"name"', '"title"'),
        }.items():
            os.makedirs(self.path(name, "seed-1"))
            for folder in (name, f"{name}/seed-1"):
                self.write(f"{folder}/config.json", config)
                self.write(f"{folder}/model.safetensors", "WEIGHTS")
            for command in (["train"], ["train", "--overwrite"], ["train", "--resume"], ["probe"], ["probe", "--overwrite"]):
                refused = self.refused(command[0], "tiny.json", "--out", name, *command[1:], says=["no run", "--out DIR"])
                self.assertNotIn("--overwrite", refused.stderr)
            for folder in (name, f"{name}/seed-1"):
                files = {file: open(self.path(folder, file), encoding="utf-8").read() for file in os.listdir(self.path(folder))
                         if file != "seed-1"}
                self.assertEqual(files, {"config.json": config, "model.safetensors": "WEIGHTS"})

    def test_a_key_without_effect_is_reported_left_out_and_no_difference(self):
        for options in ([], ["--resume"]):
            said = self.normscope("train", self.config(), "--out", "run", *options, "--set", "train.momentum=0.9").stdout
            self.assertEqual(said.count("note: set without effect: train.momentum (only sgd has it)\n"), not options)
        run = Run(self.path("run"))
        self.assertNotIn("momentum", run.json("config.json")["train"])
        self.assertNotIn("momentum", json.loads(run.metadata()["config"])["train"])
        self.refused("train", "tiny.json", "--out", "run", "--resume", "--set", "train.optimizer=sgd", says=["train.optimizer"])

    def test_what_a_kill_left_is_removed_and_nothing_else(self):
        run = self.half_done()
        self.write(run.file("best.safetensors.tmp"), "mine")
        self.write(run.file("best.safetensors.normscope-tmp"), "left by a kill")
        self.resume(run)
        self.assertEqual(run.bytes("best.safetensors.tmp"), b"mine")
        self.assertNotIn("best.safetensors.normscope-tmp", os.listdir(run.path))

    def test_a_folder_that_is_no_run_keeps_its_files(self):
        os.mkdir(self.path("mine"))
        self.write("mine/metrics.csv", "my own numbers")
        for option in ([], ["--overwrite"], ["--resume"]):
            self.refused("train", self.config(), "--out", "mine", *option, says=["metrics.csv"])
        self.assertEqual(Run(self.path("mine")).contents(), {"metrics.csv": b"my own numbers"})

    def test_the_folder_may_not_be_a_file(self):
        self.refused("train", self.config(), "--out", "text.txt", says=["text.txt"])

    def test_a_second_writer_is_refused_at_once(self):
        process = self.start("train", self.config(ENDLESS), "--out", "run", "--quiet")
        self.wait_for_rows(self.path("run", "metrics.csv"), 3, process)
        self.config(name="short.json")
        for option in ([], ["--resume"], ["--overwrite"]):
            begin = time.monotonic()
            self.refused("train", "short.json", "--out", "run", *option, code=1, says=["another process"])
            self.assertLess(time.monotonic() - begin, 5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)


if __name__ == "__main__":
    unittest.main()
