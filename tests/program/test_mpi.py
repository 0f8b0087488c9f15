#!/usr/bin/python3
"""Ranks that share a run (train --mpi): the bits of one process, whatever their number; what happens when one of them
fails."""

import glob
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli import BINARY, LONG, PATIENCE, CliTest, Run, count_lines, cpu_flags, environment, merged

MPIRUN = os.environ.get("NORMSCOPE_MPIRUN") or shutil.which("mpirun")
# Root, and more ranks than cores, as in continuous integration; a job that fails is killed at once.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                   "PRTE_MCA_hwloc_default_binding_policy": "none", "OMPI_MCA_odls_base_sigkill_timeout": "0"}
CONFIG = {"model": {"d_model": 80, "context": 32}, "log": {"every": 1, "layers_every": 3, "layers_first": 0},
          "train": {"steps": 7, "batch_size": 2, "grad_accum": 8}, "eval": {"every": 3, "batches": 3},
          "checkpoint": {"every": 4}}
# (ranks, threads) of each; 5 ranks leave some without a micro-batch in the last round.
MATRIX = {"dropout": ({"model": {"dropout": 0.1}}, [(2, 1), (3, 2), (5, 1)]),
          "batchnorm": ({"model": {"norm": "batchnorm"}, "train": {"grad_accum": 5, "optimizer": "sgd"}}, [(5, 1)]),
          "bf16": ({"train": {"precision": "bf16"}}, [(2, 1)])}
ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "checkpoint": {"every": 3}}


class MpiTest(CliTest):
    def run_ranks(self, command, code=0):
        result = self.call(*command[1:], program=command[0], env=environment(**MPI_ENVIRONMENT))
        self.assertEqual(result.returncode, code, f"{command}\n{result.stdout}\n{result.stderr}")
        return result

    def command(self, ranks, changes, out, *options):
        return [MPIRUN, "-n", str(ranks), BINARY, "train", self.config(merged(CONFIG, changes)), "--mpi", "--out", out,
                *options]

    def train_shared(self, ranks, out, changes, *options, code=0):
        self.run_ranks(self.command(ranks, changes, out, *options), code)
        return Run(self.path(out))

    def train_alone(self, out, changes, code=0):
        return self.train(out, merged(CONFIG, changes), code=code)

    def test_any_number_of_ranks_and_threads(self):
        for name, (changes, runs) in MATRIX.items():
            alone = self.train_alone(f"{name}-alone", changes)
            for ranks, threads in [(r, t) for r in (1, 2, 3, 4, 5) for t in (1, 2)] if LONG else runs:
                with self.subTest(f"{name}, {ranks} ranks of {threads} threads"):
                    run = self.train_shared(ranks, f"{name}-{ranks}-{threads}", changes, "--threads", str(threads))
                    self.assert_same_results(run, alone)
                    self.assertEqual([run.summary["ranks"], run.summary["threads"]], [ranks, threads])

    def test_divergence_is_that_of_one(self):
        wild = {"model": {"norm": "none"}, "train": {"optimizer": "sgd", "lr": 100, "grad_clip": 0, "steps": 40}}
        alone, several = self.train_alone("one", wild, code=3), self.train_shared(3, "several", wild, code=3)
        self.assert_same_results(several, alone)

    def test_what_is_wrong_is_said_once_and_nothing_written(self):
        """On all ranks, or on rank 1 of 3 alone, which has another instruction set or resumes."""
        own = shlex.join([BINARY, "train", self.config(CONFIG), "--mpi", "--out", "no"])
        cases = [(self.command(9, {}, "no"), r"^\[mpi\] 9 ranks cannot share 8 micro-batches"),
                 (self.command(2, {}, "no", "--set", "train.stps=1"), "did you mean train.steps")]
        own_bf16 = f"{own} --set train.precision=bf16"
        others = [(own, f"{own} --resume", "--resume, config ")]
        if "avx" in self.normscope("--version").stdout:
            others.append((own, f"env NORMSCOPE_ISA=baseline {own}", "config "))
        if "avx512_bf16" in cpu_flags():  # the same kernels of floats, others of bf16
            others.append((f"env NORMSCOPE_ISA=avx512 {own_bf16}", f"env NORMSCOPE_ISA=avx512_bf16 {own_bf16}",
                           "config .*, avx512_bf16, "))
        for first, other, says in others:  # not by `mpirun A : B`: Debian 13's crashes on it
            script = f"if [ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 1 ]; then exec {other}; else exec {first}; fi"
            cases.append(([MPIRUN, "-n", "3", "sh", "-c", script],
                          rf"^\[mpi\] rank 1: .*not the inputs of the first rank; got {says}"))
        for command, says in cases:
            errors = self.run_ranks(command, code=2).stderr
            self.assertEqual(len(re.findall(says, errors, re.MULTILINE)), 1, errors)
            self.assertFalse(os.path.exists(self.path("no")))

    def ranks_running(self):
        """The process of every rank of the run that was started last."""
        processes = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path.replace("environ", "comm"), encoding="utf-8") as file:
                    is_rank = file.read().startswith("normscope")
                with open(path, "rb") as file:
                    variables = dict(entry.split("=", 1) for entry in file.read().decode().split("\0") if "=" in entry)
            except (OSError, UnicodeDecodeError):
                continue
            rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK"))
            if is_rank and variables.get("NORMSCOPE_TEST_MARK") == self.folder and rank is not None:
                processes[int(rank)] = int(path.split("/")[2])
        return processes

    def stop(self, ranks, number, whom):
        """Starts or resumes the endless run and signals a rank, or mpirun, at a random moment; exit code and stderr of
        mpirun."""
        log = self.path("parts", "metrics.csv")
        before = count_lines(log)
        program, *words = self.command(ranks, ENDLESS, "parts", "--resume", "-q")
        process = self.start(*words, program=program,
                             env=environment(**MPI_ENVIRONMENT, NORMSCOPE_TEST_MARK=self.folder))
        self.wait_for(lambda: process.poll() is not None or (
            count_lines(log) not in (before, 0) and len(self.ranks_running()) == ranks), pause=0.02)
        time.sleep(random.uniform(0, 0.1))
        os.kill(process.pid if whom is None else self.ranks_running()[whom], number)
        _, errors = process.communicate(timeout=PATIENCE)
        self.wait_for(lambda: not self.ranks_running(), pause=0.02)
        return process.returncode, errors

    def test_stopped_killed_and_resumed_by_other_numbers(self):
        ends = [self.stop(*how) for how in ((2, signal.SIGUSR1, 1), (3, signal.SIGKILL, 2), (4, signal.SIGTERM, 3),
                                            (2, signal.SIGKILL, 0), (5, signal.SIGUSR1, None))]
        self.assertEqual([code == 130 for code, _ in ends], [True, False, True, False, True], ends)
        for code, errors in ends:
            self.assertEqual(errors.count("interrupted after step"), code == 130, errors)
        steps = {"train": {"steps": Run(self.path("parts")).summary["steps"] + 30}}
        parts = self.train_shared(3, "parts", merged(ENDLESS, steps), "--resume", "-q")
        self.assert_same_results(parts, self.train_alone("whole", merged(ENDLESS, steps)))


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
