#!/usr/bin/python3
"""kill -9 at any moment, and failing disks: a resumed run ends with the bits of an undisturbed one.

NORMSCOPE_LONG=1 kills 1,000 times instead of 40; NORMSCOPE_SEED=N draws other moments."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from cli import BINARY, ENDLESS, LONG, PATIENCE, CliTest, Run, count_lines, environment, merged

KILLS = 1000 if LONG else 40
# Every step logs, every second one saves: most moments lie in or beside a write.
BUSY = {"model": {"n_layer": 1, "dropout": 0.1}, "train": {"steps": 120, "warmup_steps": 5},
        "eval": {"every": 3, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 2}}
# System calls with side effects on files of a run, each the first time, and how they may fail. If a file is replaced as
# a whole, openat, write and fsync are calls on the temporary file beside it.
CALLS = [("openat", "checkpoint.safetensors", "ENOSPC"), ("write", "checkpoint.safetensors", "ENOSPC"),
         ("fsync", "checkpoint.safetensors", "EIO"), ("rename", "checkpoint.safetensors", "EIO"),
         ("write", "metrics.csv", "ENOSPC"), ("write", "params.csv", "ENOSPC"), ("truncate", "metrics.csv", "EIO"),
         ("fsync", "metrics.csv", "EIO"), ("rename", "model.safetensors", "EIO"), ("rename", "summary.json", "EIO")]


def in_mounts(test, script):
    """Runs a shell script where it may mount; a mount goes with it."""
    try:
        result = test.call("--map-root-user", "--mount", "sh", "-euc", script, program="unshare")
    except FileNotFoundError:
        test.skipTest("no unshare here")
    if "unshare" in result.stderr or "mount:" in result.stderr:
        test.skipTest(f"no mounting here: {result.stderr.strip()}")
    return result


class Kills(CliTest):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(int(os.environ.get("NORMSCOPE_SEED", "1")))

    def run_and_kill(self, run, *arguments):
        """Starts the program and kills it: in one of four cases soon, or else some rows of the log later; False: it
        ended before. Rows, not seconds: a machine may be slow, or busy for a while."""
        rows = count_lines(run.file("metrics.csv")) + self.draw.randrange(30)
        process = self.start(*arguments, stdout=subprocess.DEVNULL)
        if self.draw.randrange(4) > 0:
            self.wait_for_rows(run.file("metrics.csv"), rows, process)
        time.sleep(self.draw.uniform(0, 0.02))
        process.kill()
        self.assertEqual(process.communicate()[1], "")
        self.assertIn(process.returncode, (0, -signal.SIGKILL))
        return process.returncode != 0

    def test_runs_killed_anywhere_end_as_if_undisturbed(self):
        whole, run = self.train("whole", BUSY), Run(self.path("run"))
        train = ("train", "tiny.json", "--out", "run", "--quiet")
        kills = finished = 0
        killed_at = set()
        start = "--resume"
        while kills < KILLS or finished == 0:
            if self.run_and_kill(run, *train, start):
                kills += 1
                start = "--resume"
                killed_at.add((count_lines(run.file("metrics.csv")),
                               *sorted(os.listdir(run.path) if os.path.exists(run.path) else ())))
                if kills < KILLS:
                    continue
                self.normscope(*train, "--resume")
            self.assert_same_results(run, whole)
            finished += 1
            # The next one starts over the finished run, or from nothing.
            start = self.draw.choice(("--resume", "--overwrite"))
            if start == "--resume":
                shutil.rmtree(run.path)
        print(f"kills survived: {kills}, in {finished} runs, at {len(killed_at)} moments", file=sys.stderr)
        self.assertGreater(len(killed_at), KILLS // 8, "most kills came at the same moment")


class Interrupted(CliTest):
    def test_bench_leaves_no_temporary_folder(self):
        os.mkdir(self.path("temporary"))
        process = self.start("bench", self.config(), "--steps", "1000000",
                             env=environment(TMPDIR=self.path("temporary")))
        self.wait_for(lambda: os.listdir(self.path("temporary")))
        self.assertEqual(self.end(process, signal.SIGINT), (130, "[bench] interrupted\n"))
        self.assertEqual(os.listdir(self.path("temporary")), [])


class Disk(CliTest):
    """A disk is full or read-only, or loses the folder of a run."""

    def test_a_full_disk(self):
        whole, run = self.train("whole", BUSY), Run(self.path("saved"))
        os.mkdir(self.path("disk"))
        for kilobytes in (20, 40, 90, 140, 200) if not LONG else range(10, 210, 10):
            shutil.rmtree(run.path, ignore_errors=True)
            result = in_mounts(self, f"""
                mount -t tmpfs -o size={kilobytes}k none disk
                code=0; "$NORMSCOPE_BINARY" train tiny.json --out disk/run --quiet || code=$?
                mount -o remount,size=10m disk
                "$NORMSCOPE_BINARY" train tiny.json --out disk/run --quiet --resume
                cp -r disk/run saved
                exit $code""")
            self.assertEqual(result.returncode, 1, (kilobytes, result.stderr))
            self.assertRegex(result.stderr, r"^\[\w+\] \S*disk/run\S*: [^\n]*: No space left on device\n$")
            self.assert_same_results(run, whole)

    def test_a_read_only_disk(self):
        run = self.train("run", {"train": {"steps": 12}, "checkpoint": {"every": 4}})
        before = run.contents()
        for arguments, code in ((["run", "--resume"], 0), (["run", "--overwrite"], 1), (["run/new", "--quiet"], 1)):
            result = in_mounts(self, f"""
                mount --bind run run
                mount -o remount,bind,ro run
                "$NORMSCOPE_BINARY" train tiny.json --out {' '.join(arguments)} """)
            self.assertEqual(result.returncode, code, (arguments, result.stderr))
            if code:
                self.assertRegex(result.stderr, rf"^\[\w+\] .*{arguments[0]}\b.*: Read-only file system\n$")
            self.assertEqual(run.contents(), before)

    def test_files_removed_during_a_run_end_it(self):
        run = self.path("run")
        for lose in (lambda: shutil.rmtree(run, ignore_errors=True), lambda: os.rename(run, self.path("moved")),
                     lambda: os.remove(f"{run}/metrics.csv"), lambda: os.remove(f"{run}/layers.csv")):
            process = self.start_training("run", merged(ENDLESS, {"checkpoint": {"every": 20}}), rows=50)
            lose()
            stderr = process.communicate(timeout=PATIENCE)[1]
            self.assertEqual(process.returncode, 1, stderr)
            self.assertRegex(stderr, r"^\[\w+\] \S*run\b.*(No such file or directory|removed .*)\n$")
            shutil.rmtree(run, ignore_errors=True)
        steps = int(Run(self.path("moved")).metadata("checkpoint.safetensors")["step"]) + 30
        self.normscope("train", "tiny.json", "--out", "moved", "--resume", "--set", f"train.steps={steps}")
        self.normscope("train", "tiny.json", "--out", "whole", "--set", f"train.steps={steps}")
        self.assert_same_results(Run(self.path("moved")), Run(self.path("whole")))


class SystemCalls(CliTest):
    """A kill or an error in a system call, by strace, of a run that is resumed after step 8 of 12."""

    SMALL = {"model": {"n_layer": 1}, "train": {"steps": 12}, "eval": {"every": 4},
             "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 4}}

    def setUp(self):
        super().setUp()
        try:
            subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            self.skipTest("strace is missing or may not trace here")
        self.whole, half = self.train("whole", self.SMALL), self.half_done("half", self.SMALL)
        self.assertEqual(half.metadata("checkpoint.safetensors")["step"], "8")
        # A whole path: strace says what it resolves. One thread: it makes all calls, in the same order each time.
        self.command = ("train", "tiny.json", "--out", self.path("run"), "--resume", "--threads", "1")
        self.assertEqual(self.strace("-e", "trace=openat,write,fsync,rename").returncode, 0)
        trace = Path(self.path("trace")).read_text(encoding="utf-8", errors="replace")
        self.calls = trace.splitlines()  # of an undisturbed command

    def strace(self, *options):
        """The result of the command, under strace, in a fresh copy of the half run."""
        shutil.rmtree(self.path("run"), ignore_errors=True)
        if os.path.exists(self.path("half")):
            shutil.copytree(self.path("half"), self.path("run"))
        # ptrace and a search for leaks exclude each other
        return self.call("-f", "-y", "-o", self.path("trace"), *options, BINARY, *self.command, program="strace",
                         env=environment(ASAN_OPTIONS="detect_leaks=0"))

    def number_of(self, call, name):
        """The number, among the calls of its kind, of the first one about the file that replaces `name`. Its own name
        is drawn at random; the rename tells it."""
        rename = next(line for line in self.calls if "rename(" in line and line.split('"')[3] == self.path("run", name))
        process, temporary = rename.split()[0], rename.split('"')[1]
        of_this_kind = [line for line in self.calls if line.startswith(process) and f" {call}(" in line]
        return 1 + next(i for i, line in enumerate(of_this_kind) if temporary in line)

    def resume(self, call, name, fault, time=1):
        """The result of the command when a call has a fault: the first on the file that replaces this one, or on a log,
        to which rows are appended, the `time`-th."""
        is_log = name.endswith(".csv")
        only = ["-P", self.path("run", name)] if is_log else []
        when = time if is_log else self.number_of(call, name)
        return self.strace("-e", f"trace={call}", *only, "-e", f"inject={call}:{fault}:when={when}")

    def assert_resumes_to_the_same(self):
        self.normscope(*self.command)
        self.assert_same_results(Run(self.path("run")), self.whole)

    def test_a_kill_or_an_error_in_a_system_call(self):
        for call, name, error in CALLS:
            message = rf"^\[\w+\] .*\brun\b.*: {os.strerror(getattr(errno, error))}\n$"
            for fault, code, says in (("signal=KILL", -signal.SIGKILL, "^$"), (f"error={error}", 1, message)):
                with self.subTest(call=call, name=name, fault=fault):
                    result = self.resume(call, name, fault)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertRegex(result.stderr, says)
                    self.assert_resumes_to_the_same()

    def test_a_signal_in_a_system_call_ends_what_follows(self):
        """An evaluation, that of the whole text after it, and at the end the sample and the count of n-grams."""
        for call, name, time in (("write", "layers.csv", 3), ("rename", "best.safetensors", 1),
                                 ("rename", "model.safetensors", 1), ("rename", "sample.txt", 1)):
            with self.subTest(call=call, name=name):
                result = self.resume(call, name, "signal=TERM", time)
                self.assertEqual(result.returncode, 130, result.stderr)
                self.assertIn("interrupted after step 12; ", result.stderr)
                rows = Run(self.path("run")).rows("metrics.csv")
                self.assertEqual(rows[-1]["step"], "12" if "s.csv" not in name and "best" not in name else "11")
                self.assert_resumes_to_the_same()

    def test_what_is_optional_may_fail(self):
        result = self.resume("rename", "sample.txt", "error=EIO")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"^note: without sample\.txt: [^\n]*: Input/output error\n$")
        self.assertEqual(Run(self.path("run")).summary["status"], "done")

    def test_a_child_killed_between_its_first_files_goes_on_or_starts_anew(self):
        self.normscope("train", "tiny.json", "--out", "child", "--from", "whole")
        child, run = Run(self.path("child")), Run(self.path("run"))
        shutil.rmtree(self.path("half"))
        fresh = ("train", "tiny.json", "--out", self.path("run"), "--from", "whole")
        states = set()
        for number in range(1, 9):
            for restart in ("--resume", "--overwrite"):
                self.command = fresh
                killed = self.strace("-e", "trace=rename", "-e", f"inject=rename:signal=KILL:when={number}")
                self.assertEqual(killed.returncode, -signal.SIGKILL)
                states.add(tuple(sorted(os.listdir(run.path))))
                has_weights = os.path.exists(run.file("checkpoint.safetensors"))
                self.normscope(*(fresh[:4] if restart == "--resume" and has_weights else fresh),
                               *([restart] if restart == "--overwrite" or has_weights else []))
                self.assert_same_results(run, child)
        self.assertGreater(len(states), 6, states)

    def test_a_parent_is_read_once(self):
        shutil.rmtree(self.path("half"))
        parent = self.path("whole", "model.safetensors")
        self.command = ("train", "tiny.json", "--out", self.path("run"), "--from", parent)
        self.assertEqual(self.strace("-e", "trace=openat", "-P", parent).returncode, 0)
        self.assertEqual(Path(self.path("trace")).read_text(encoding="utf-8").count("openat("), 1)

    def test_a_file_system_without_locks_is_noted(self):
        for error in ("ENOLCK", "ENOSYS", "EOPNOTSUPP"):
            result = self.strace("-e", "trace=flock", "-e", f"inject=flock:error={error}")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("has no locks", result.stdout)
            self.assert_same_results(Run(self.path("run")), self.whole)


if __name__ == "__main__":
    unittest.main()
