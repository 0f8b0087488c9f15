#!/usr/bin/python3
"""kill -9 at any moment, and what disks do: the run that is then resumed ends with the bits of one left alone.

NORMSCOPE_LONG=1 kills 1,000 times instead of 60; NORMSCOPE_SEED=N draws other moments."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import unittest

from cli import BINARY, LOGS, LONG, ROOT, TEXT, CliTest, Run, environment

KILLS = 1000 if LONG else 60
# Every step logs, every second one saves: most moments lie in or beside a write.
BUSY = {"model": {"n_layer": 1, "dropout": 0.1}, "train": {"steps": 120, "warmup_steps": 5},
        "eval": {"every": 3, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 2}}
RESULTS = ("model.safetensors", "best.safetensors", "checkpoint.safetensors", "checkpoint.previous.safetensors",
           "config.json", "sample.txt")
SHORT_IO = os.environ.get("NORMSCOPE_SHORT_IO", os.path.join(os.path.dirname(BINARY), "tests", "libshort_io.so"))


def in_mounts(test, script):
    """Runs a shell script where it may mount; a mount goes with it."""
    try:
        result = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-euc", script], cwd=test.folder,
                                env=environment(NORMSCOPE=BINARY), capture_output=True, encoding="utf-8", check=False)
    except FileNotFoundError:
        test.skipTest("no unshare here")
    if "unshare" in result.stderr or "mount:" in result.stderr:
        test.skipTest(f"no mounting here: {result.stderr.strip()}")
    return result


class CrashTest(CliTest):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(int(os.environ.get("NORMSCOPE_SEED", "1")))


class Kills(CrashTest):
    def seconds_of(self, *arguments):
        begin = time.monotonic()
        self.normscope(*arguments)
        return time.monotonic() - begin

    def run_and_kill(self, after, *arguments):
        """Starts the program and kills it `after` seconds; False: it was done before."""
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.kill()
        # A note would say that a kill had left a damaged checkpoint.
        self.assertEqual(process.communicate()[1], "")
        self.assertIn(process.returncode, (0, -9))
        return process.returncode != 0

    def assert_whole_rows(self, run):
        """But for this: Linux looks for a kill between the pages of a write, and then leaves the rest of it."""
        for name in LOGS:
            if os.path.exists(run.file(name)) and (rows := run.bytes(name)) and not rows.endswith(b"\n"):
                self.assertEqual(len(rows) % os.sysconf("SC_PAGE_SIZE"), 0, f"{name} ends in a torn row")
                self.torn += 1

    def test_runs_killed_anywhere_end_as_if_left_alone(self):
        config = self.config(BUSY)
        seconds = self.seconds_of("train", config, "--out", "whole", "--quiet")
        start_up = self.seconds_of("train", config, "--out", "whole", "--quiet", "--resume")  # and nothing to do
        whole, run = Run(self.path("whole")), Run(self.path("run"))
        kills = finished = self.torn = 0
        killed_at = set()
        start = ["--resume"]
        while kills < KILLS or finished == 0:
            # Mostly within a quarter of the work, so that a run is killed several times; now and then anywhere.
            work = (seconds - start_up) * self.draw.choice((0.25, 0.25, 0.25, 1))
            after = self.draw.uniform(0, start_up + work)
            if self.run_and_kill(after, "train", config, "--out", "run", *start):
                kills += 1
                start = ["--resume"]
                if os.path.isdir(run.path):
                    self.assert_whole_rows(run)
                    killed_at.add(tuple(sorted(os.listdir(run.path))))
                if kills < KILLS:
                    continue
                self.normscope("train", config, "--out", "run", "--resume", "--quiet")
            self.assertEqual(sorted(os.listdir(run.path)), sorted(os.listdir(whole.path)), "something is left over")
            self.assert_same_results(run, whole, files=RESULTS)
            self.assertEqual(run.summary["final_val_loss"], whole.summary["final_val_loss"])
            finished += 1
            # The next one starts over what is there, or from nothing.
            start = self.draw.choice((["--resume"], ["--overwrite"]))
            if start == ["--resume"]:
                shutil.rmtree(run.path)
        print(f"kills survived: {kills}, in {finished} runs, in {len(killed_at)} states of the folder; "
              f"{self.torn} rows torn at the end of a page", file=sys.stderr)
        self.assertGreater(len(killed_at), 3, "the kills came all at the same stage")

    def test_the_best_model_is_the_summary_s_whatever_changes_on_the_way(self):
        """Kills between an evaluation and the checkpoint that tells of it; then resumed with other steps and evaluations,
        so that what came after the checkpoint does not come again."""
        # The windows of an evaluation are English, the others, which the last one takes too, are not: it is never the best.
        windows = [self.draw.choices(sorted(set(TEXT)), k=16) for _ in range(40)]
        windows[::10] = [TEXT[at : at + 16] for at in (100, 200, 300, 400)]
        self.write("val.txt", "".join(map("".join, windows)) + "e")
        config = self.config({"model": {"n_layer": 1}, "data": {"val_path": "val.txt"}, "train": {"steps": 120},
                              "log": {"every": 1}, "eval": {"every": 2, "batches": 1}, "checkpoint": {"every": 25}})
        run = Run(self.path("run"))
        abandoned = 0
        for attempt in range(60 if LONG else 6):
            shutil.rmtree(run.path, ignore_errors=True)
            for _ in range(self.draw.randrange(1, 4)):
                sets = [f"eval.every={self.draw.randrange(2, 30)}", f"train.steps={self.draw.randrange(60, 160)}"]
                process = self.start("train", config, "--out", "run", "--resume", "--set", sets[0], "--set", sets[1])
                self.wait_for_rows(run.file("metrics.csv"), self.draw.randrange(30, 120), process)
                process.kill()
                process.wait()
            if not os.path.exists(run.file("checkpoint.safetensors")):
                continue
            best, saved = (int(run.metadata(f"{name}.safetensors")["step"]) for name in ("best", "checkpoint"))
            abandoned += best > saved
            self.normscope("train", config, "--out", "run", "--resume", "--set", "eval.every=0",
                           "--set", f"train.steps={saved + 1}")
            losses = {int(row["step"]): float(row["val_loss"]) for row in run.rows("metrics.csv") if row["val_loss"]}
            step = run.summary["best_step"]
            self.assertEqual((step, run.summary["best_val_loss"]),
                             (min(losses, key=losses.get), min(losses.values())), attempt)
            self.assertEqual(run.metadata("best.safetensors")["step"], str(step))
            self.assertEqual(run.metadata("checkpoint.safetensors")["best_step"], str(step))
            self.assertNotIn("best.previous.safetensors", os.listdir(run.path))
        self.assertGreater(abandoned, 0, "no kill came where it was wanted")

    def test_short_counts_and_interrupted_calls_change_nothing(self):
        """Every read and write moves half of what is asked, every fifth fails with EINTR (tests/preload)."""
        if not os.path.exists(SHORT_IO):
            self.skipTest(f"no {SHORT_IO}; build it, or name it in NORMSCOPE_SHORT_IO")
        whole, run = self.train("whole", BUSY), Run(self.path("run"))
        for options in ([], ["--overwrite"], ["--resume"]):
            self.normscope("train", "tiny.json", "--out", "run", "--quiet", *options,
                           env=environment(LD_PRELOAD=SHORT_IO))
            self.assert_same_results(run, whole, files=RESULTS)

    def test_a_sweep_on_a_full_disk_goes_on_when_there_is_room(self):
        """Wherever the disk is full: in a log's header, in the table, in a checkpoint."""
        self.config(BUSY | {"train": {"steps": 20}})
        self.write("sweep.json", json.dumps({"base": "tiny.json", "seeds": [1], "grid": {"train.lr": [1e-3, 1e-2]}}))
        os.mkdir(self.path("disk"))
        sweep = f"{sys.executable} {os.path.join(ROOT, 'scripts', 'sweep.py')}"
        for kilobytes in (0, 4, 12, 20, 40, 200):
            shutil.rmtree(self.path("saved"), ignore_errors=True)
            result = in_mounts(self, f"""
                mount -t tmpfs -o size=10m none disk
                dd if=/dev/zero of=disk/full bs=1k count={10 * 1024 - 4 - kilobytes} 2> /dev/null
                code=0; {sweep} sweep.json --out disk/out > said 2> errors || code=$?
                rm disk/full
                cat errors >&2
                test $code = 1
                {sweep} sweep.json --out disk/out > said
                cp -r disk/out saved""")
            self.assertEqual(result.returncode, 0, (kilobytes, result.stderr))
            self.assertRegex(result.stderr, r"^\[(file|csv|sweep|lock)\] [^\n]*\n$")
            with open(self.path("saved", "summary.csv"), encoding="utf-8") as table:
                self.assertEqual(table.read().count(",done,"), 2)
            self.assertEqual(sorted(os.listdir(self.path("saved"))),
                             ["lr=0.001_seed=1", "lr=0.01_seed=1", "summary.csv"])


class Damage(CrashTest):
    """A checkpoint that changed on the disk is never gone on from: the previous one is, and that is said."""

    def test_any_flipped_bit_and_any_cut_is_noticed(self):
        whole = self.train("whole", {"train": {"steps": 12}, "checkpoint": {"every": 4}})
        sound = whole.bytes("checkpoint.safetensors")
        header = int.from_bytes(sound[:8], "little")
        count = 400 if LONG else 8
        places = [*range(8), sound.index(b'"checksum"') + 3, 8 + header, len(sound) - 1,
                  *self.draw.sample(range(8, 8 + header), count), *self.draw.sample(range(8 + header, len(sound)), count)]
        damages = {f"bit flipped in byte {at}": sound[:at] + bytes([sound[at] ^ 1 << self.draw.randrange(8)]) + sound[at + 1:]
                   for at in (places if LONG else places[::2])}
        for size in (0, 7, 8, 8 + header // 2, 8 + header, len(sound) // 2, len(sound) - 1):
            damages[f"cut to {size} bytes"] = sound[:size]
        damages["longer"] = sound + b"\0"
        damages["another kind"] = whole.bytes("metrics.csv")
        damages["without a checksum"] = re.sub(rb'"checksum":"', rb'"cheksum_":"', sound)
        for name, content in damages.items():
            with self.subTest(name):
                shutil.rmtree(self.path("run"), ignore_errors=True)
                shutil.copytree(whole.path, self.path("run"))
                run = Run(self.path("run"))
                self.write(run.file("checkpoint.safetensors"), content)
                result = self.call("train", "tiny.json", "--out", "run", "--resume", "--quiet")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stderr, r"^\[safetensors\] run/checkpoint\.safetensors: .*; "
                                                r"using run/checkpoint\.previous\.safetensors instead\n$")
                self.assert_no_controls(result.stderr)
                self.assert_same_results(run, whole, files=RESULTS)


class Disk(CrashTest):
    """What a disk does to a run: it fills, it is read-only, its folder goes."""

    ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "log": {"every": 1, "layers_every": 50},
               "eval": {"every": 0}, "checkpoint": {"every": 20}}

    def test_a_full_disk(self):
        whole, run = self.train("whole", BUSY), Run(self.path("saved"))
        os.mkdir(self.path("disk"))
        result = in_mounts(self, """
            mount -t tmpfs -o size=200k none disk
            code=0; "$NORMSCOPE" train tiny.json --out disk/run --quiet || code=$?
            cp -r disk/run full
            mount -o remount,size=10m disk
            "$NORMSCOPE" train tiny.json --out disk/run --quiet --resume
            cp -r disk/run saved
            exit $code""")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"^\[\w+\] \S*disk/run/\S+: cannot be written: No space left on device\n$")
        full = Run(self.path("full"))
        self.assertGreater(int(full.metadata("checkpoint.safetensors")["step"]), 0)
        for name in LOGS:
            self.assertTrue(full.bytes(name).endswith(b"\n"), name)
        self.assert_same_results(run, whole, files=RESULTS)

    def test_a_read_only_disk(self):
        run = self.train("run", {"train": {"steps": 12}, "checkpoint": {"every": 4}})
        os.replace(run.file("checkpoint.previous.safetensors"), run.file("checkpoint.safetensors"))
        before = run.contents()
        for folder, option in (("run", "--resume"), ("run", "--overwrite"), ("run/new", "--quiet")):
            result = in_mounts(self, f"""
                mount --bind run run
                mount -o remount,bind,ro run
                "$NORMSCOPE" train tiny.json --out {folder} --quiet {option}""")
            self.assertEqual(result.returncode, 1, (folder, option, result.stderr))
            self.assertRegex(result.stderr, rf"^\[\w+\] .*{folder}\b.*: Read-only file system\n$")
            self.assertEqual(run.contents(), before)

    def lose(self, how):
        """Exit code and stderr of a run whose folder is lost in the middle."""
        process = self.start("train", self.config(self.ENDLESS), "--out", "run", "--quiet")
        self.wait_for_rows(self.path("run", "metrics.csv"), 50, process)
        how()
        _, stderr = process.communicate(timeout=60)
        return process.returncode, stderr

    def test_a_folder_that_goes_while_it_is_written(self):
        def remove():
            shutil.rmtree(self.path("run"), ignore_errors=True)
            shutil.rmtree(self.path("run"), ignore_errors=True)  # what was written meanwhile

        def replace():
            os.rename(self.path("run"), self.path("moved"))
            os.mkdir(self.path("run"))

        for how in (remove, replace):
            code, stderr = self.lose(how)
            self.assertEqual(code, 1, stderr)
            self.assertRegex(stderr, r"^\[\w+\] \S*run\b.*(moved, removed or replaced while .*|replaced or removed .*|No such file or directory)\n$")
        self.assertEqual(os.listdir(self.path("run")), [], "another's folder by now")
        steps = int(Run(self.path("moved")).metadata("checkpoint.safetensors")["step"]) + 30
        self.normscope("train", "tiny.json", "--out", "moved", "--resume", "--set", f"train.steps={steps}")
        self.normscope("train", "tiny.json", "--out", "whole", "--set", f"train.steps={steps}")
        self.assert_same_results(Run(self.path("moved")), Run(self.path("whole")))


if __name__ == "__main__":
    unittest.main()
