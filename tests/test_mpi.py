#!/usr/bin/python3
"""Processes that share a run (train --mpi): the bits of one, whatever their number; what happens when one of them fails."""

import glob
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli import BINARY, LONG, TESTS, CliTest, Run, environment, merged

MPIRUN = os.environ.get("NORMSCOPE_MPIRUN") or shutil.which("mpirun")
# Root, and more processes than cores: what continuous integration has. A job that fails is killed without the second
# that Open MPI gives its processes twice.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                   "PRTE_MCA_hwloc_default_binding_policy": "none", "OMPI_MCA_odls_base_sigkill_timeout": "0",
                   "NORMSCOPE_MPI_TIMEOUT": "60"}
FILES = ("checkpoint.safetensors", "model.safetensors", "best.safetensors", "sample.txt",
         "config.json")
CONFIG = {"model": {"d_model": 80, "context": 32, "norm_placement": "pre"}, "log": {"every": 1, "layers_every": 3},
          "train": {"steps": 9, "batch_size": 2, "grad_accum": 8}, "eval": {"every": 3, "batches": 3}, "checkpoint": {"every": 4}}
MATRIX = {"pre": {}, "post": {"model": {"norm_placement": "post"}, "train": {"grad_accum": 9, "optimizer": "sgd"}},
          "batchnorm": {"model": {"norm": "batchnorm"}}, "dropout": {"model": {"dropout": 0.1}, "train": {"grad_accum": 11}},
          "bf16": {"train": {"precision": "bf16"}}}
LONG_RUN = {"train": {"steps": 80}, "checkpoint": {"every": 3}, "model": {"dropout": 0.1}}


def is_open_mpi():
    return MPIRUN is not None and b"Open" in subprocess.run([MPIRUN, "--version"], capture_output=True, check=False).stdout


class MpiTest(CliTest):
    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def command(self, ranks, *arguments):
        return [MPIRUN, "-n", str(ranks), BINARY, *arguments]

    @staticmethod
    def command_of_each(*commands):
        """Rank i runs the i-th command. Not by `mpirun A : B`: Debian 13's crashes on it."""
        cases = " ".join(f"{rank}) exec {shlex.join(command)} ;;" for rank, command in enumerate(commands))
        return [MPIRUN, "-n", str(len(commands)), "sh", "-c", f"case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in {cases} esac"]

    def run_ranks(self, command, code=0, env=None):
        result = subprocess.run(command, cwd=self.folder, env=environment(**MPI_ENVIRONMENT, **(env or {})),
                                stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120, check=False)
        self.assertEqual(result.returncode, code, f"{command}\n{result.stdout}\n{result.stderr}")
        return result

    def train_shared(self, ranks, out, changes=None, *options, **expectations):
        self.run_ranks(self.command(ranks, "train", self.config(merged(CONFIG, changes or {})), "--mpi", "--out", out, *options),
                       **expectations)
        return Run(self.path(out))

    def train_alone(self, out, changes=None, *options, **expectations):
        return self.train(out, merged(CONFIG, changes or {}), *options, **expectations)

    def start_ranks(self, ranks, out, changes, *options, **env):
        """Starts a run and leaves it running; the process of mpirun."""
        config = self.config(merged(CONFIG, changes))
        return self.start_command(self.command(ranks, "train", config, "--mpi", "--out", out, *options), **env)

    def start_command(self, command, **env):
        self.mark = f"{os.getpid()}-{random.random()}"
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment(**{**MPI_ENVIRONMENT, "NORMSCOPE_TEST_MARK": self.mark, **env}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True)

        def end():
            for pid in [*self.ranks_running().values(), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.communicate()

        self.addCleanup(end)
        return process

    def ranks_running(self):
        """The process of every rank of the run that was started last."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path.replace("environ", "cmdline"), "rb") as file:
                    is_rank = b"--mpi" in file.read()
                with open(path, "rb") as file:
                    entries = file.read().decode(errors="replace").split("\0")
                variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            except OSError:
                continue
            rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK"))
            if variables.get("NORMSCOPE_TEST_MARK") == self.mark and rank is not None and is_rank:
                found[int(rank)] = int(path.split("/")[2])
        return found

    def end_of(self, process):
        """Exit code and stderr of mpirun, within seconds, with no rank left."""
        _, errors = process.communicate(timeout=30)
        self.wait_for(lambda: not self.ranks_running())
        return process.returncode, errors


class Bits(MpiTest):
    def test_any_number_of_ranks_and_threads(self):
        everything = [(ranks, threads) for ranks in (1, 2, 3, 4, 8) for threads in (1, 2)]
        for i, (name, changes) in enumerate(MATRIX.items()):
            one = self.train_alone(f"{name}-one", changes)
            quick = everything[1::2] if name == "dropout" else [(2, 1) if i % 2 else (3, 2)]
            for ranks, threads in everything if LONG else quick:
                with self.subTest(f"{name}, {ranks} ranks of {threads} threads"):
                    run = self.train_shared(ranks, f"{name}-{ranks}-{threads}", changes, "--threads", str(threads))
                    self.assert_same_results(run, one, files=FILES)
                    self.assertEqual([run.summary["ranks"], run.summary["threads"]], [ranks, threads])

    def test_divergence_and_skips_are_those_of_one(self):
        wild = {"model": {"norm": "none"}, "train": {"optimizer": "sgd", "lr": 100, "grad_clip": 0, "steps": 40}}
        self.train_alone("one", wild, code=3)
        several = self.train_shared(4, "several", wild, code=3)
        self.assert_same_results(several, Run(self.path("one")), files=())
        self.assertEqual(several.summary["first_nonfinite"], Run(self.path("one")).summary["first_nonfinite"])
        skips = merged(wild, {"train": {"on_nonfinite": "skip"}})
        self.normscope("train", self.config(merged(CONFIG, skips)), "--out", "one-skip", "-q", code=3)
        several = self.train_shared(3, "several-skip", skips, code=3)
        self.assertEqual(several.summary["skipped"], Run(self.path("one-skip")).summary["skipped"])
        self.assertGreater(several.summary["skipped"], 1)
        self.assert_same_results(several, Run(self.path("one-skip")), files=())

    def test_alone_and_cores(self):
        """--mpi outside of mpirun is one rank; the ranks of a machine share its cores."""
        one = self.train_alone("one")
        self.normscope("train", self.config(CONFIG), "--out", "mpi", "--mpi", env=environment(**MPI_ENVIRONMENT))
        self.assert_same_results(Run(self.path("mpi")), one, files=FILES)
        two = self.train_shared(2, "two", env={"OMP_NUM_THREADS": str(os.cpu_count())})
        self.assertIn(two.summary["threads"], range(1, max(2, os.cpu_count() // 2 + 1)))


class Failures(MpiTest):
    def stop(self, ranks, signal_number, whom, out="parts"):
        """Starts or resumes the long run, signals one of its processes at a random moment; exit code of mpirun, stderr."""
        process = self.start_ranks(ranks, out, LONG_RUN, "--resume", "-q")
        self.wait_for(lambda: process.poll() is not None or len(self.ranks_running()) == ranks)
        before = self.rows(out)
        self.wait_for(lambda: process.poll() is not None or self.rows(out) not in (before, 0))
        time.sleep(random.uniform(0, 0.3))
        try:
            os.kill(process.pid if whom is None else self.ranks_running()[whom], signal_number)
        except (KeyError, ProcessLookupError):
            pass  # it was quicker
        return self.end_of(process)

    def rows(self, out):
        try:
            with open(self.path(out, "metrics.csv"), "rb") as file:
                return file.read().count(b"\n")
        except FileNotFoundError:
            return 0

    def assert_ends_as(self, whole, out="parts"):
        parts = self.train_shared(3, out, LONG_RUN, "--resume", "-q")
        # The checkpoint before the last may be that of a stop.
        self.assert_same_results(parts, whole, files=FILES)

    def test_stopped_by_signals_and_resumed_by_other_numbers(self):
        whole = self.train_alone("whole", LONG_RUN)
        for ranks, number, whom in ((2, signal.SIGUSR1, 1), (4, signal.SIGTERM, 3), (1, signal.SIGTERM, 0),
                                    (5, signal.SIGUSR1, None)):  # None: mpirun
            code, errors = self.stop(ranks, number, whom)
            self.assertIn(code, (0, 130), errors)
            if code == 130:
                self.assertEqual(errors.count("interrupted after step"), 1, errors)
        self.assert_ends_as(whole)

    def test_a_killed_rank_ends_the_job_and_no_bit_is_lost(self):
        whole = self.train_alone("whole", LONG_RUN)
        random.seed(2)
        killed, times = 0, 50 if LONG else 3
        for _ in range(times):
            if self.rows("parts") > LONG_RUN["train"]["steps"]:  # begin anew
                self.assert_ends_as(whole)
                shutil.rmtree(self.path("parts"))
            ranks = random.choice((2, 3, 4))
            code, _ = self.stop(ranks, signal.SIGKILL, random.randrange(ranks))
            killed += code != 0
        self.assertGreater(killed, times // 2)
        self.assert_ends_as(whole)

    def test_what_is_wrong_is_said_once(self):
        self.write("fine.json", self.read(self.config(CONFIG)))
        for ranks, arguments, says in (
                (9, ("fine.json",), "[mpi] 9 ranks cannot share 8 micro-batches (train.grad_accum); start fewer, or cut a step"
                                    " into more: train.grad_accum=9 with train.batch_size=1"),
                (2, ("fine.json", "--set", "train.stps=1"), "did you mean train.steps"),
                (2, ("fine.json", "--rezume"), "--resume"),
                (2, ("missing.json",), "missing.json")):
            result = self.run_ranks(self.command(ranks, "train", *arguments, "--mpi", "--out", "no"), code=2)
            self.assertEqual(result.stderr.count(says), 1, result.stderr)
            self.assertFalse(os.path.exists(self.path("no")))

    def test_a_rank_that_differs_is_named(self):
        """Rank 1 of 3 cannot read the text, reads another one or another config, computes other bits."""
        self.write("fine.json", self.read(self.config(CONFIG)))
        self.write("other.txt", self.read("text.txt")[::-1])
        own = [BINARY, "train", "fine.json", "--mpi", "--out", "no"]
        for more, says in ((["--set", "data.path=nowhere.txt"], "nowhere.txt"),
                           (["--set", "data.path=other.txt"], "[corpus] is not that of the first rank"),
                           (["--set", "train.lr=0.5"], "[config] is not that of the first rank")):
            result = self.run_ranks(self.command_of_each(own, [*own, *more], own), code=2)
            self.assertRegex(result.stderr, r"(?m)^\[mpi\] rank 1 on \S+: .*" + says.replace("[", r"\["))
            self.assertEqual(result.stderr.count(says), 1, result.stderr)
        if "avx512" in self.normscope("--version").stdout:
            other = ["env", "NORMSCOPE_ISA=avx2", *own]
            result = self.run_ranks(self.command_of_each(own, other), code=2)
            self.assertRegex(result.stderr, r"(?m)^\[mpi\] rank 1 on \S+: \[mpi\] this machine \(.*avx2")

    def test_a_full_disk_ends_all(self):
        process = self.start_ranks(2, "full", merged(LONG_RUN, {"train": {"steps": 5000}}), "-q")
        self.wait_for(lambda: os.path.exists(self.path("full", "checkpoint.safetensors")))
        resource.prlimit(self.ranks_running()[0], resource.RLIMIT_FSIZE, (1, 1))
        code, errors = self.end_of(process)
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, r"(?m)^\[\w+\] full/\S+: .*too large")
        self.assertNotIn("[mpi]", errors)
        self.assert_valid_file(self.path("full", "checkpoint.safetensors"))

    def test_a_time_that_is_no_number_is_refused(self):
        for given in ("30m", "0", "none", ""):
            code, errors = self.end_of(self.start_ranks(2, "timed", {}, "-q", NORMSCOPE_MPI_TIMEOUT=given))
            self.assertNotEqual(code, 0, errors)
            self.assertIn(f"[NORMSCOPE_MPI_TIMEOUT] got {given}; expected seconds, 1 or more", errors)

    def test_a_rank_that_hangs_is_given_up(self):
        process = self.start_ranks(2, "hung", merged(LONG_RUN, {"train": {"steps": 5000}}), "-q", NORMSCOPE_MPI_TIMEOUT="4")
        self.wait_for(lambda: self.rows("hung") > 3)
        os.kill(self.ranks_running()[1], signal.SIGSTOP)
        started = time.monotonic()
        code, errors = self.end_of(process)
        self.assertLess(time.monotonic() - started, 20)
        self.assertEqual(code, 1, errors)
        self.assertIn("no word from another rank", errors)


@unittest.skipUnless(LONG and is_open_mpi(), "the long form's, with Open MPI")
class TwoHosts(MpiTest):
    def test_hosts_joined_by_tcp(self):
        changes = {"model": {"norm": "batchnorm", "dropout": 0.1}}
        one = self.train_alone("one", changes)
        for ranks_a_host, threads in ((1, 2), (2, 1), (3, 1)):
            command = [os.path.join(TESTS, "two_hosts.sh"), MPIRUN, str(ranks_a_host), BINARY, "train", "tiny.json", "--mpi",
                       "--out", f"two-{ranks_a_host}", "--threads", str(threads)]
            done = subprocess.run(command, cwd=self.folder, env=environment(**MPI_ENVIRONMENT), capture_output=True, check=False)
            if done.returncode == 77:
                self.skipTest("no network namespaces here")
            self.assertEqual(done.returncode, 0, done.stderr)
            run = Run(self.path(f"two-{ranks_a_host}"))
            self.assert_same_results(run, one, files=FILES)
            self.assertEqual(run.summary["ranks"], 2 * ranks_a_host)


def has_mpi():
    says = subprocess.run([BINARY, "train", "--mpi", "no.json"], capture_output=True, text=True, check=False,
                          env=environment(**MPI_ENVIRONMENT)).stderr
    if "this build has no MPI" in says:
        assert says.startswith("[mpi] ") and "-DNORMSCOPE_MPI=ON" in says, says
        return False
    return MPIRUN is not None


if __name__ == "__main__":
    if not has_mpi():
        print("no mpirun, or a build without MPI")
        sys.exit(77)
    unittest.main()
