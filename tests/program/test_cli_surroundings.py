"""The surroundings of a run: signals, terminals, a small stack, threads of the environment."""

import fcntl
import math
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

from cli import ENDLESS, LONG, PATIENCE, CliTest, Run, environment, merged  # which finds lib
from lib.base import processors



class Signals(CliTest):
    def test_a_reader_that_has_gone_away_saves_the_run(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as gone:
            run = self.train("run", ENDLESS, code=130, stdout=gone)
        self.assertEqual(run.summary["status"], "interrupted")

    def test_a_hangup_that_nohup_ignores_changes_nothing(self):
        process = self.start_training("run", None, rows=1, env=environment(UCX_DEBUG_SIGNO="0"),  # src/train/RANKS.md
                                      preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(timeout=PATIENCE), 0)


class Terminal(CliTest):
    def shown(self, *arguments, columns=80, term="xterm"):
        """The text that a terminal of that width receives."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = self.start(*arguments, env=environment(TERM=term), stdout=theirs, stderr=theirs)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # its end, as Linux has it
            pass
        os.close(ours)
        self.assertEqual(process.wait(timeout=PATIENCE), 0, text)
        return text.decode()

    def progress(self, columns, *options, config=None):
        """The progress lines of a run."""
        config = config or self.config({"train": {"steps": 300}})
        shown = self.shown("train", config, "--out", "run", "--overwrite", *options, columns=columns)
        lines = [line for line in re.split(r"\r(?:\x1b\[J|\n)", shown) if re.match(r"step \d+/", line)]
        self.assertGreater(len(lines), 0, shown)
        return lines

    def test_the_time_left_is_kept_where_a_terminal_is_narrow(self):
        for line in self.progress(100):
            self.assertRegex(line, r"^step \d+/300  loss [0-9.]+(  val [0-9.]+)?  grad [▁-█]{2} 1:[0-9.e+]+  "
                                   r"[0-9.kM]+ tokens/s  \d+:\d\d left$")
        deep = self.config({"model": {"n_layer": 12}, "train": {"steps": 300}, "eval": {"every": 0}})
        for line in self.progress(66, config=deep):
            if "  val " not in line:  # a validation loss leaves no room for bars
                # three bytes a bar, and one column
                self.assertRegex(line, r"  grad [▁-█]{12} 1:[0-9.]+  \d+:\d\d left$")
        for columns, words in ((45, r"step \d+/300  loss [0-9.]+(  val [0-9.]+)?"), (27, r"step \d+/300")):
            for line in self.progress(columns):
                self.assertRegex(line, rf"^{words}  \d+:\d\d left$")
                self.assertLess(len(line), columns)

    def test_the_gradient_by_depth_is_that_of_the_last_row_of_layers(self):
        config = self.config({"model": {"n_layer": 5, "norm_placement": "none", "init": {"scheme": "xavier_normal"}},
                              "train": {"steps": 1500},
                              "log": {"layers_every": 100000, "layers_first": 0}})
        lines = [line for line in self.progress(120, config=config) if not line.startswith("step 1500/")]
        gradients = [float(row["grad_rms"]) for row in Run(self.path("run")).rows("layers.csv")
                     if (row["step"], row["site"]) == ("1", "stream") and row["layer"] != "0"]
        span = max(math.log(10), math.log(max(gradients) / min(gradients)))
        bars = "".join("▁▂▃▄▅▆▇█"[round(7 * math.log(g / min(gradients)) / span)] for g in gradients)
        self.assertGreater(len(set(bars)), 1)
        self.assertTrue(lines)
        for line in lines:
            self.assertIn(f"  grad {bars} 1:{max(gradients) / min(gradients):.2g}  ", line)

    def test_a_terminal_without_escape_sequences_gets_none(self):
        shown = self.shown("train", self.config(), "--out", "run", term="dumb")
        self.assertNotIn("\x1b", shown)
        self.assertIn("done: ", shown)

    def test_sample_says_which_weights_it_takes(self):
        self.train("run")
        self.assertTrue(self.shown("sample", "run").startswith("weights of step 25: run/model.safetensors\r\n"))
        os.remove(self.path("run/model.safetensors"))
        self.assertIn("weights of step 25: run/checkpoint.safetensors\r\n", self.shown("sample", "run"))


class Memory(CliTest):
    def test_it_does_not_grow_and_no_file_stays_open(self):
        """While a run logs, evaluates and saves, for two seconds or, in the long form, for an hour."""
        changes = merged(ENDLESS, {"log": {"every": 10, "layers_every": 50}, "eval": {"every": 100},
                                   "checkpoint": {"every": 50}})
        # AddressSanitizer keeps what was freed for a while, so that its memory grows.
        no_quarantine = environment(ASAN_OPTIONS="quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
        process = self.start_training("run", changes, "--quiet", rows=20, env=no_quarantine)
        looks, end = [], time.monotonic() + (3600 if LONG else 2)
        while time.monotonic() < end or len(looks) < 8:  # a busy machine may stand still for seconds
            self.assertIsNone(process.poll(), "it ended by itself")
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                resident = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])
            looks.append((resident, len(os.listdir(f"/proc/{process.pid}/fd"))))
            time.sleep(0.25)
        halves = looks[:len(looks) // 2], looks[len(looks) // 2:]
        before, after = (max(resident for resident, _ in half) for half in halves)
        self.assertLessEqual(after, 1.01 * before)
        before, after = (min(files for _, files in half) for half in halves)  # while a file is written, it is open
        self.assertEqual(after, before)

    def test_a_small_stack_is_enough(self):
        self.train("run", {"model": {"d_model": 128, "d_ff": 2048}, "train": {"steps": 2}}, "--threads", "4",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (256 * 1024, 256 * 1024)))


class Threads(CliTest):
    def test_a_wrong_instruction_set_is_refused(self):
        self.train("run")
        for command in (("sample", "run"), ("train", "tiny.json", "--out", "other"), ("bench",)):
            self.refused(*command, says=["[isa] NORMSCOPE_ISA: got bogus"], env=environment(NORMSCOPE_ISA="bogus"))

    def threads_of(self, *options, **variables):
        """The number of threads that the first line of a run names."""
        shown = self.normscope("train", self.config(), "--out", "run", "--overwrite", *options,
                               env=environment(**variables)).stdout
        return int(re.search(r"(\d+) threads?,", shown)[1])

    def test_the_command_line_comes_before_the_config_and_openmps_count(self):
        quota = processors.quota()  # of the container
        self.assertEqual(self.threads_of(OMP_NUM_THREADS="3"), math.ceil(min(3, quota)))
        self.assertEqual(self.threads_of(OMP_NUM_THREADS="2,1"), math.ceil(min(2, quota)))
        self.assertEqual(self.threads_of("--set", "train.threads=2", OMP_NUM_THREADS="3"), 2)
        self.assertEqual(self.threads_of("--set", "train.threads=2", "--threads", "4", OMP_NUM_THREADS="3"), 4)
        if math.isinf(quota):
            self.refused("train", "tiny.json", says=["[threads] OMP_NUM_THREADS: got 70000"],
                         env=environment(OMP_NUM_THREADS="70000"))

    def test_an_affinity_mask_of_one_processor_means_one_thread(self):
        unset = {name: value for name, value in environment().items() if not name.startswith(("OMP_", "GOMP_"))}
        one = {max(os.sched_getaffinity(0))}
        result = self.normscope("train", self.config(), "--out", "run", env=unset,
                                preexec_fn=lambda: os.sched_setaffinity(0, one))
        self.assertIn(" 1 thread, ", result.stdout)

    def test_bits_depend_neither_on_busy_programs_nor_on_threads_tried(self):
        config = self.config({"train": {"steps": 150}})
        self.normscope("train", config, "--out", "alone", "--threads", "1")
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                self.normscope("train", config, "--out", "beside", env=environment(OMP_NUM_THREADS="2"))
            finally:
                busy.kill()
        self.assert_same_results(Run(self.path("alone")), Run(self.path("beside")))


if __name__ == "__main__":
    unittest.main()
