#!/usr/bin/python3
"""A kill, an error or a short count at every system call that touches a run's folder: nothing half written is taken for
whole, the checkpoint before stays, the error is one line that names the file, and --resume gives the same bits.

strace puts the faults in. By default those of a checkpoint's write are tried, and some of the others;
NORMSCOPE_LONG=1 tries all. Skipped where strace is missing or may not trace."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from cli import BINARY, LONG, TESTS, CliTest, Run, environment

SMALL = {"model": {"n_layer": 1, "d_model": 8, "norm": "rmsnorm", "position": "rope"}, "train": {"steps": 12},
         "eval": {"every": 8, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 4}}
RESULTS = ("model.safetensors", "best.safetensors", "checkpoint.safetensors", "checkpoint.previous.safetensors",
           "config.json", "sample.txt")
CALLS = "openat,read,pread64,write,fsync,ftruncate,rename,link,unlink,close,newfstatat,flock,mkdir"
# What else than success each call may say.
ERRORS = {"openat": ("EACCES", "EROFS", "ENOSPC"), "read": ("EIO",), "pread64": ("EIO",), "write": ("ENOSPC", "EIO"),
          "fsync": ("EIO", "ENOSPC"), "ftruncate": ("EIO",), "rename": ("EIO", "ENOSPC"), "link": ("EIO", "EPERM"),
          "unlink": ("EIO",), "close": ("EIO",), "newfstatat": ("EIO",), "flock": ("EIO",), "mkdir": ("EACCES", "ENOSPC")}


def strace_works():
    try:
        return subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Call:
    """A system call of a traced run: its name, which of that name it is (from 1), its arguments and result as text."""

    def __init__(self, name, number, line):
        self.name, self.number, self.line = name, number, line
        written = re.search(r"= (\d+)$", line)
        self.result = int(written[1]) if written else None

    def touches(self, text):
        return text in self.line

    def __str__(self):
        return f"{self.name} no. {self.number}: {self.line[:120]}"


class FaultTest(CliTest):
    """`half`: a run that was killed in its last act, with checkpoints of steps 4 and 8; `whole`: the same left alone."""

    def setUp(self):
        super().setUp()
        self.config(SMALL)
        self.whole = self.train("whole", SMALL)
        finish = next(c for c in self.calls("train", "tiny.json", "--out", "half", "--quiet")
                      if c.name == "openat" and c.touches("model.safetensors.normscope-tmp"))
        shutil.rmtree(self.path("half"))
        self.strace(self.inject(finish, "signal=KILL"), "train", "tiny.json", "--out", "half", "--quiet")
        half = Run(self.path("half"))
        steps = [half.metadata(name)["step"] for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors")]
        self.assertEqual((steps, half.rows("metrics.csv")[-1]["step"]), (["8", "4"], "12"))

    def strace(self, options, *arguments):
        """Runs the program under strace; strace passes its exit code and its death on."""
        # Leaks cannot be looked for under ptrace.
        env = environment(ASAN_OPTIONS="detect_leaks=0")
        return subprocess.run(["strace", "-f", *options, BINARY, *arguments], cwd=self.folder, env=env, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False)

    def calls(self, *arguments, notes=False):
        """Every call of the program that touches its run's folder (its last argument but options)."""
        folder = self.path(arguments[arguments.index("--out") + 1])
        result = self.strace(["-y", "-s", "0", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", self.path("trace")],
                             *arguments)
        self.assertEqual((result.returncode, result.stderr != ""), (0, notes), result.stderr)
        counts, found = {}, []
        with open(self.path("trace"), encoding="utf-8") as trace:
            for line in trace:
                match = re.match(r"\d+ +(\w+)\(", line)
                if not match:
                    continue
                name = match[1]
                counts[name] = counts.get(name, 0) + 1
                call = Call(name, counts[name], line.strip())
                # Relative to the working directory, or absolute.
                if call.touches(folder) or call.touches(f'"{os.path.basename(folder)}'):
                    found.append(call)
        self.assertGreater(len(found), 20)
        return found

    def inject(self, call, fault):
        return ["-o", os.devnull, "-e", f"trace={call.name}", "-e", f"inject={call.name}:{fault}:when={call.number}"]

    def fresh(self, name="half"):
        """A run folder `run` as it was before the fault."""
        shutil.rmtree(self.path("run"), ignore_errors=True)
        shutil.copytree(self.path(name), self.path("run"))
        return Run(self.path("run"))

    def assert_resumes_to_the_same(self, run, note=""):
        result = self.call("train", "tiny.json", "--out", "run", "--resume", "--quiet")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, f"^{note}$")
        self.assert_same_results(run, self.whole, files=RESULTS)
        self.assertEqual(sorted(os.listdir(run.path)), sorted(os.listdir(self.whole.path)), "something is left over")

    def of_interest(self, calls):
        """All at length; else those of the checkpoint's files, of which the middle tensors' writes are alike, and every
        fifth of the others."""
        if LONG:
            return calls
        of_checkpoint = [c for c in calls if c.touches("checkpoint") and not c.name.startswith("pread")]
        data = [c for c in of_checkpoint if c.name == "write"][3:-1]
        of_checkpoint = [c for c in of_checkpoint if c not in data[1:]]
        return of_checkpoint + [c for c in calls if c not in of_checkpoint and c not in data][::5]


class Kills(FaultTest):
    def test_killed_at_every_call(self):
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]
        self.fresh()
        calls = self.of_interest(self.calls(*resume))
        for call in calls:
            with self.subTest(str(call)):
                run = self.fresh()
                self.assertEqual(self.strace(self.inject(call, "signal=KILL"), *resume).returncode, -signal.SIGKILL)
                self.assert_resumes_to_the_same(run)
        print(f"killed at {len(calls)} system calls", file=sys.stderr)

    def test_killed_at_every_call_of_an_overwriting_start(self):
        """The folder holds a run of another seed; what is there after the kill is one of the two, and says so."""
        self.train("other", SMALL, "--set", "train.seed=2")
        self.config(SMALL)
        start = ["train", "tiny.json", "--out", "run", "--overwrite", "--quiet"]
        self.fresh("other")
        calls = self.calls(*start)
        first_row = next(i for i, call in enumerate(calls) if call.name == "fsync" and call.touches("metrics.csv"))
        calls = calls[:first_row]
        for call in calls if LONG else [c for c in calls if c.name in ("unlink", "rename")] + calls[::5]:
            with self.subTest(str(call)):
                run = self.fresh("other")
                self.assertEqual(self.strace(self.inject(call, "signal=KILL"), *start).returncode, -signal.SIGKILL)
                again = self.call("train", "tiny.json", "--out", "run", "--resume", "--quiet")
                if again.returncode != 0:  # still the other one: refused, by its key
                    self.assertEqual(again.returncode, 2)
                    self.assertIn("train.seed", again.stderr)
                    self.normscope("train", "tiny.json", "--out", "run", "--overwrite", "--quiet")
                self.assert_same_results(run, self.whole, files=RESULTS)

    def test_killed_where_there_are_no_hard_links(self):
        """The last checkpoint is then renamed to `previous`, so for a moment it has no other name."""
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]
        self.fresh()
        renames = [c for c in self.calls(*resume) if c.name == "rename" and c.touches("checkpoint")]
        self.assertEqual(len(renames), 2)
        for call in renames:
            run = self.fresh()
            no_links = ["-e", f"trace=link,{call.name}", "-e", "inject=link:error=EPERM"]
            killed = self.strace([*self.inject(call, "signal=KILL"), *no_links], *resume)
            self.assertEqual(killed.returncode, -signal.SIGKILL)
            self.assertEqual("checkpoint.safetensors" in os.listdir(run.path), call is renames[0])
            self.assert_resumes_to_the_same(run)

    def test_killed_beside_a_damaged_checkpoint(self):
        """The run went on from the previous one, which must stay until there is a sound last one."""
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]

        def fresh():
            run = self.fresh()
            self.write(run.file("checkpoint.safetensors"), run.bytes("checkpoint.safetensors")[:-1])
            return run

        fresh()
        calls = self.calls(*resume, notes=True)
        for call in calls if LONG else [c for c in calls if c.name in ("rename", "link") and c.touches("checkpoint")]:
            with self.subTest(str(call)):
                run = fresh()
                self.assertEqual(self.strace(self.inject(call, "signal=KILL"), *resume).returncode, -signal.SIGKILL)
                self.assert_resumes_to_the_same(run, r"(\[safetensors\] .* cut short.*; using .*\.previous\..*\n)?")

    def test_resumed_and_killed_a_run_is_not_taken_for_done(self):
        """Its last act was complete but for the checkpoint, so the summary said `done`; now its logs grow again."""
        run = self.fresh("whole")
        os.replace(run.file("checkpoint.previous.safetensors"), run.file("checkpoint.safetensors"))
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]
        row = [c for c in self.calls(*resume) if c.name == "write" and c.touches("metrics.csv")][1]
        run = self.fresh("whole")
        os.replace(run.file("checkpoint.previous.safetensors"), run.file("checkpoint.safetensors"))
        self.strace(self.inject(row, "signal=KILL"), *resume)
        self.assertEqual(run.rows("metrics.csv")[-1]["step"], "9")
        self.assertEqual(run.summary["status"], "interrupted")
        self.assertGreater(run.summary["seconds"], 0)
        self.assert_resumes_to_the_same(run)


class Errors(FaultTest):
    # An error here takes nothing from the run: the data is on the disk, or the file is only read.
    HARMLESS = {("close", "EIO"), ("unlink", "EIO"), ("link", "EIO"), ("link", "EPERM"), ("newfstatat", "EIO")}

    def test_errors_at_every_call(self):
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]
        self.fresh()
        tried = 0
        for call in self.of_interest(self.calls(*resume)):
            for error in ERRORS[call.name] if LONG else ERRORS[call.name][:2]:
                with self.subTest(f"{error} in {call}"):
                    run = self.fresh()
                    result = self.strace(self.inject(call, f"error={error}"), *resume)
                    tried += 1
                    self.assert_one_line_or_harmless(result, call, error)
                    self.assert_resumes_to_the_same(run)
        print(f"errors put in: {tried}", file=sys.stderr)

    def test_bytes_that_never_reach_the_disk_are_noticed(self):
        """Each write of the last checkpoint says that it wrote, and did not: the run cannot know, its --resume does."""
        resume = ["train", "tiny.json", "--out", "run", "--resume", "--quiet"]
        self.fresh()
        writes = [c for c in self.calls(*resume) if c.name == "write" and c.touches("checkpoint.safetensors.normscope-tmp")]
        for call in writes if LONG else writes[:3] + writes[-1:]:
            with self.subTest(str(call)):
                run = self.fresh()
                self.assertEqual(self.strace(self.inject(call, f"retval={call.result}"), *resume).returncode, 0)
                self.assert_resumes_to_the_same(run, r"\[safetensors\] run/checkpoint\.safetensors: .*; "
                                                     r"using run/checkpoint\.previous\.safetensors instead\n")

    def assert_one_line_or_harmless(self, result, call, error):
        reason = os.strerror(getattr(errno, error))
        if result.returncode == 0:
            reading_checkpoint = "checkpoint.safetensors" in call.line and call.name in ("openat", "pread64", "newfstatat")
            if result.stderr and reading_checkpoint:  # the previous one is taken, and said
                self.assertRegex(result.stderr, rf"^\[safetensors\] run/checkpoint\.safetensors: .*{reason}; "
                                                r"using run/checkpoint\.previous\.safetensors instead\n$")
                return
            self.assertIn((call.name, error), self.HARMLESS)
            self.assertEqual(result.stderr, "")
            return
        # A config that cannot be read is the user's to look after, wherever it lies.
        self.assertIn(result.returncode, (1, 2) if call.touches("config.json") else (1,))
        self.assertRegex(result.stderr, rf"^\[\w+\] .*\brun\b.*: {reason}\n$")
        self.assert_no_controls(result.stderr)


if __name__ == "__main__":
    if not strace_works():
        print("strace is missing or may not trace here; install it with: scripts/install_packages.sh strace")
        sys.exit(77)
    unittest.main()
