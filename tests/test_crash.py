#!/usr/bin/python3
"""kill -9 at any moment, and what disks do: a resumed run ends with the bits of an undisturbed one.

NORMSCOPE_LONG=1 kills 1,000 times instead of 40 and at every system call; NORMSCOPE_SEED=N draws other moments."""

import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli import BINARY, LOGS, LONG, CliTest, Run, environment

KILLS = 1000 if LONG else 40
# Every step logs, every second one saves: most moments lie in or beside a write.
BUSY = {"model": {"n_layer": 1, "dropout": 0.1}, "train": {"steps": 120, "warmup_steps": 5},
        "eval": {"every": 3, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 2}}
SMALL = {"model": {"n_layer": 1, "d_model": 8, "norm": "rmsnorm", "position": "rope"}, "train": {"steps": 12},
         "eval": {"every": 8, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 4}}
RESULTS = ("model.safetensors", "best.safetensors", "checkpoint.safetensors", "config.json", "sample.txt")
# System calls with side effects on a run's folder, and how each may fail.
CALLS = {"openat": "ENOSPC", "write": "ENOSPC", "fsync": "EIO", "rename": "EIO", "ftruncate": "EIO", "unlink": "EIO"}
HARMLESS = {"unlink"}  # the file to remove was a leftover


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
        """Starts the program and kills it after `after` seconds; False: it ended before."""
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.kill()
        self.assertEqual(process.communicate()[1], "")
        self.assertIn(process.returncode, (0, -9))
        return process.returncode != 0

    def progress_of(self, run):
        """Files of a run's folder and size of its log: tells moments of a kill apart."""
        if not os.path.isdir(run.path):
            return None
        log = run.file("metrics.csv")
        return tuple(sorted(os.listdir(run.path))), os.path.getsize(log) if os.path.exists(log) else 0

    def test_runs_killed_anywhere_end_as_if_undisturbed(self):
        config = self.config(BUSY)
        seconds = self.seconds_of("train", config, "--out", "whole", "--quiet")
        start_up = self.seconds_of("train", config, "--out", "whole", "--quiet", "--resume")  # nothing to do
        whole, run = Run(self.path("whole")), Run(self.path("run"))
        kills = finished = 0
        killed_at = set()
        start = ["--resume"]
        while kills < KILLS or finished == 0:
            # Mostly within a quarter of the work, so that a run is killed several times; now and then anywhere.
            work = (seconds - start_up) * self.draw.choice((0.25, 0.25, 0.25, 1))
            if self.run_and_kill(self.draw.uniform(0, start_up + work), "train", config, "--out", "run", *start):
                kills += 1
                start = ["--resume"]
                killed_at.add(self.progress_of(run))
                if kills < KILLS:
                    continue
                self.normscope("train", config, "--out", "run", "--resume", "--quiet")
            self.assertEqual(sorted(os.listdir(run.path)), sorted(os.listdir(whole.path)), "something is left over")
            self.assert_same_results(run, whole, files=RESULTS)
            self.assertEqual(run.summary["final_val_loss"], whole.summary["final_val_loss"])
            finished += 1
            # The next one starts over the finished run, or from nothing.
            start = self.draw.choice((["--resume"], ["--overwrite"]))
            if start == ["--resume"]:
                shutil.rmtree(run.path)
        print(f"kills survived: {kills}, in {finished} runs, at {len(killed_at)} moments", file=sys.stderr)
        self.assertGreater(len(killed_at), KILLS // 8, "most kills came at the same moment")


class Damage(CrashTest):
    def test_a_damaged_checkpoint_is_refused_in_one_line(self):
        whole = self.train("whole", {"train": {"steps": 12}, "checkpoint": {"every": 4}})
        sound = whole.bytes("checkpoint.safetensors")
        data = 8 + int.from_bytes(sound[:8], "little")
        damages = {f"bit flipped in byte {at}": sound[:at] + bytes([sound[at] ^ 1 << self.draw.randrange(8)]) + sound[at + 1:]
                   for at in (*range(8), data, len(sound) - 1, *self.draw.sample(range(data, len(sound)), 400 if LONG else 12))}
        for size in (0, 7, 8, data // 2, data, len(sound) // 2, len(sound) - 1):
            damages[f"cut to {size} bytes"] = sound[:size]
        damages["longer"] = sound + b"\0"
        damages["another kind"] = whole.bytes("metrics.csv")
        run = Run(self.path("run"))
        for name, content in damages.items():
            with self.subTest(name):
                shutil.rmtree(run.path, ignore_errors=True)
                shutil.copytree(whole.path, run.path)
                self.write(run.file("checkpoint.safetensors"), content)
                self.refused("train", "tiny.json", "--out", "run", "--resume", "--quiet", code=1,
                             says=["[safetensors] run/checkpoint.safetensors"])


class Disk(CrashTest):
    """What a disk does to a run: it fills, it is read-only, its folder goes."""

    ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "log": {"every": 1, "layers_every": 50},
               "eval": {"every": 0}, "checkpoint": {"every": 20}}

    def test_a_full_disk(self):
        whole, run = self.train("whole", BUSY), Run(self.path("saved"))
        os.mkdir(self.path("disk"))
        for kilobytes in (20, 40, 90, 140, 200) if not LONG else range(10, 210, 10):
            for folder in ("full", "saved"):
                shutil.rmtree(self.path(folder), ignore_errors=True)
            result = in_mounts(self, f"""
                mount -t tmpfs -o size={kilobytes}k none disk
                code=0; "$NORMSCOPE" train tiny.json --out disk/run --quiet || code=$?
                cp -r disk/run full
                mount -o remount,size=10m disk
                "$NORMSCOPE" train tiny.json --out disk/run --quiet --resume
                cp -r disk/run saved
                exit $code""")
            self.assertEqual(result.returncode, 1, (kilobytes, result.stderr))
            self.assertRegex(result.stderr, r"^\[\w+\] \S*disk/run\S*: [^\n]*: No space left on device\n$")
            for name in LOGS:
                if os.path.exists(self.path("full", name)):
                    self.assertTrue(Run(self.path("full")).bytes(name).endswith(b"\n"), name)
            self.assert_same_results(run, whole, files=RESULTS)

    def test_a_read_only_disk(self):
        run = self.train("run", {"train": {"steps": 12}, "checkpoint": {"every": 4}})
        before = run.contents()
        for arguments, code in ((["run", "--resume"], 0), (["run", "--overwrite"], 1), (["run/new", "--quiet"], 1)):
            result = in_mounts(self, f"""
                mount --bind run run
                mount -o remount,bind,ro run
                "$NORMSCOPE" train tiny.json --out {' '.join(arguments)} """)
            self.assertEqual(result.returncode, code, (arguments, result.stderr))
            if code:
                self.assertRegex(result.stderr, rf"^\[\w+\] .*{arguments[0]}\b.*: Read-only file system\n$")
            self.assertEqual(run.contents(), before)

    def lose(self, how):
        """Exit code and stderr of a run whose folder or log is lost in the middle."""
        process = self.start("train", self.config(self.ENDLESS), "--out", "run", "--quiet")
        self.wait_for_rows(self.path("run", "metrics.csv"), 50, process)
        how()
        _, stderr = process.communicate(timeout=60)
        return process.returncode, stderr

    def test_files_removed_during_a_run_end_it(self):
        for how in (lambda: shutil.rmtree(self.path("run"), ignore_errors=True),
                    lambda: os.rename(self.path("run"), self.path("moved")),
                    lambda: os.remove(self.path("run", "metrics.csv")),
                    lambda: os.remove(self.path("run", "layers.csv"))):
            code, stderr = self.lose(how)
            self.assertEqual(code, 1, stderr)
            self.assertRegex(stderr, r"^\[\w+\] \S*run\b.*(No such file or directory|removed .*)\n$")
            shutil.rmtree(self.path("run"), ignore_errors=True)
        steps = int(Run(self.path("moved")).metadata("checkpoint.safetensors")["step"]) + 30
        self.normscope("train", "tiny.json", "--out", "moved", "--resume", "--set", f"train.steps={steps}")
        self.normscope("train", "tiny.json", "--out", "whole", "--set", f"train.steps={steps}")
        self.assert_same_results(Run(self.path("moved")), Run(self.path("whole")))


class SystemCalls(CrashTest):
    """A kill or an error in system calls on the run's folder, by strace."""

    RESUME = ("train", "tiny.json", "--out", "run", "--resume", "--quiet")

    def setUp(self):
        super().setUp()
        try:
            subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            self.skipTest("strace is missing or may not trace here")
        self.whole = self.train("whole", SMALL)
        # `half`: killed after the last step, with the checkpoint of step 8.
        model = next(call for call in self.calls("train", "tiny.json", "--out", "half", "--quiet")
                     if call[0] == "openat" and "model.safetensors.normscope-tmp" in call[2])
        shutil.rmtree(self.path("half"))
        self.inject(model, "signal=KILL", "train", "tiny.json", "--out", "half", "--quiet")
        self.assertEqual(Run(self.path("half")).metadata("checkpoint.safetensors")["step"], "8")

    def strace(self, options, *arguments):
        env = environment(ASAN_OPTIONS="detect_leaks=0")  # leaks cannot be looked for under ptrace
        return subprocess.run(["strace", "-f", *options, BINARY, *arguments], cwd=self.folder, env=env, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False)

    def calls(self, *arguments):
        """(name, number among those of the name, line) of each call on the run's folder, the value of --out."""
        self.strace(["-y", "-s", "0", "-e", f"trace={','.join(CALLS)}", "-e", "signal=none", "-o", self.path("trace")],
                    *arguments)
        folder = arguments[arguments.index("--out") + 1]
        counts, found = {}, []
        with open(self.path("trace"), encoding="utf-8") as trace:
            for line in trace:
                if (match := re.match(r"\d+ +(\w+)\(", line)) is None:
                    continue
                name = match[1]
                counts[name] = counts.get(name, 0) + 1
                if self.path(folder) in line or f'"{folder}/' in line:
                    found.append((name, counts[name], line.strip()))
        self.assertGreater(len(found), 20)
        return found

    def inject(self, call, fault, *arguments):
        name, number, _ = call
        return self.strace(["-o", os.devnull, "-e", f"trace={name}", "-e", f"inject={name}:{fault}:when={number}"], *arguments)

    def fresh(self):
        shutil.rmtree(self.path("run"), ignore_errors=True)
        shutil.copytree(self.path("half"), self.path("run"))

    def sampled_calls(self):
        self.fresh()
        calls = self.calls(*self.RESUME)
        if LONG:
            return calls
        commits = [c for c in calls if "checkpoint" in c[2] and c[0] != "write"]
        return commits + self.draw.sample([c for c in calls if c not in commits], 16)

    def assert_resumes_to_the_same(self):
        self.normscope(*self.RESUME)
        self.assert_same_results(Run(self.path("run")), self.whole, files=RESULTS)
        self.assertEqual(sorted(os.listdir(self.path("run"))), sorted(os.listdir(self.whole.path)))

    def test_killed_in_a_system_call(self):
        for call in self.sampled_calls():
            with self.subTest(call):
                self.fresh()
                self.assertEqual(self.inject(call, "signal=KILL", *self.RESUME).returncode, -signal.SIGKILL)
                self.assert_resumes_to_the_same()

    def test_a_file_system_without_locks_is_noted(self):
        for error in ("ENOLCK", "ENOSYS", "EOPNOTSUPP"):
            self.fresh()
            result = self.strace(["-o", os.devnull, "-e", "trace=flock", "-e", f"inject=flock:error={error}"],
                                 *self.RESUME[:-1])
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("has no locks", result.stdout)
            self.assert_same_results(Run(self.path("run")), self.whole, files=RESULTS)

    def test_an_error_of_a_system_call_is_one_line(self):
        for call in self.sampled_calls():
            error = CALLS[call[0]]
            with self.subTest(call):
                self.fresh()
                result = self.inject(call, f"error={error}", *self.RESUME)
                if result.returncode == 0:
                    self.assertIn(call[0], HARMLESS)
                else:
                    self.assertIn(result.returncode, (1, 2) if "config.json" in call[2] else (1,))
                    reason = os.strerror(getattr(errno, error))
                    self.assertRegex(result.stderr, rf"^\[\w+\] .*\brun\b.*: {reason}\n$")
                self.assert_resumes_to_the_same()


if __name__ == "__main__":
    unittest.main()
