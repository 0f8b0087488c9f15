"""The base of the tests of the command line: a tiny config and text, running the program, reading the files that it
writes."""

import contextlib
import copy
import csv
import ctypes
import gc
import json
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
os.environ.pop("PYTHONPATH", None)  # names folders of tests (tests/CMakeLists.txt), which the scripts must not need
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from lib.logs.safetensors_io import fnv1a
from lib.logs.safetensors_io import read as read_safetensors
from lib.logs.safetensors_io import write as write_safetensors

BINARY = os.environ.get("NORMSCOPE_BINARY", os.path.join(ROOT, "build", "normscope"))
os.environ["NORMSCOPE_BINARY"] = BINARY  # for the scripts
LONG = "NORMSCOPE_LONG" in os.environ  # the long forms of tests: `ctest -C long -L long`
PATIENCE = 3600 if LONG else 900  # seconds that a process may take: what hangs fails, and what is slow does not


def in_memory(folder="/dev/shm"):
    """Whether the folder is a file system of its own in which the tests may write, with room for them, and may run
    programs."""
    if not os.access(folder, os.W_OK) or not os.path.ismount(folder):
        return False
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize > 2 << 30 and not about.f_flag & os.ST_NOEXEC


# Syncing small files to a disk takes much of the tests' time. The long forms do it.
if not LONG and "TMPDIR" not in os.environ and in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"

TEXT = Path(ROOT, "data", "austen.txt").read_text(encoding="utf-8")[:6000]
VOCABULARY = len(set(TEXT))

TINY = {
    "model": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 16},
    "data": {"path": "text.txt"},
    "train": {"steps": 25, "batch_size": 4},
    "eval": {"every": 10, "batches": 2},
    "log": {"every": 10, "layers_every": 10},
    "checkpoint": {"every": 10},
}
# A run that does not end by itself. At a constant rate one of fewer steps is its beginning.
ENDLESS = {"train": {"steps": 10_000_000, "schedule": "constant"}, "log": {"every": 1}, "eval": {"every": 0}}

SITES = ["attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out", "stream"]
LOGS = ("metrics.csv", "layers.csv", "params.csv", "heads.csv")
TIMING = {"seconds", "step_ms", "tokens_per_s"}  # columns of metrics.csv that no two runs share
CIRCUMSTANCES = {"peak_rss_mb", "threads", "ranks", "logged_since"}  # other figures of a summary that the way decides


def write_run(folder, config, summary=None):
    """A run folder of made-up files."""
    os.makedirs(folder)
    for name, content in (("config.json", config), ("summary.json", summary)):
        if content is not None:
            Path(folder, name).write_text(json.dumps(content), encoding="utf-8")


def sites_of(n_layer):
    """(layer, site) of every row that a logged step has in layers.csv, in order."""
    blocks = [(layer, site) for layer in range(1, n_layer + 1) for site in SITES]
    return [(0, "stream"), *blocks, (n_layer + 1, "final"), (n_layer + 1, "logits")]


# The environment of a test's programs, and of those that scripts start in the test's own process. One thread unless a
# test says otherwise: tests run beside each other. With GOMP_SPINCOUNT the program need not start itself again to set
# it.
os.environ |= {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}


def environment(**more):
    """The environment of a test's programs. AddressSanitizer, where the build has it, lets a test's preloaded library
    come first. OPENBLAS_NUM_THREADS is there for numpy, and users have none."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    return {**inherited, "LC_ALL": "C.UTF-8", "ASAN_OPTIONS": "verify_asan_link_order=0", **more}


def cpu_flags():
    """The abilities of this processor, by Linux's names."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return set(next((line.split() for line in file if line.startswith(("flags", "Features"))), []))


def read_csv(path):
    """(columns, rows as dicts of text)."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        return reader.fieldnames, list(reader)


def count_lines(path):
    """The number of whole lines of a file; 0 if there is no such file."""
    with contextlib.suppress(FileNotFoundError):
        return Path(path).read_bytes().count(b"\n")
    return 0


def header_and_data(content):
    """The two parts of a safetensors file."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), content[start:]


def with_metadata(content, changes):
    """The bytes of a safetensors file with other metadata (None: without the key), and without a checksum."""
    header, data = header_and_data(content)
    metadata = {**header["__metadata__"], "checksum": None, **changes}
    header["__metadata__"] = {key: value for key, value in metadata.items() if value is not None}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def merged(base, changes):
    """`base` with `changes` laid over it, section by section."""
    out = copy.deepcopy(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


def run_script(path, *arguments, cwd, env=None):
    """Runs a Python script in a child process that has the modules of this one: importing numpy, matplotlib or torch
    anew takes longer than most scripts do. `env`: its environment, if it is another one. Returns the completed
    process."""
    words = [str(path), *map(str, arguments)]

    def child(*streams):
        gc.disable()  # it would go through all that was imported, and copy its pages
        warnings.simplefilter("ignore", ResourceWarning)  # as in programs; unittest shows it
        # numpy's BLAS would wait for threads that fork() left behind
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(1)
        for descriptor, stream in enumerate(streams, start=1):
            os.dup2(stream.fileno(), descriptor)
        os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")

    with (tempfile.TemporaryFile("w+", encoding="utf-8") as out,
          tempfile.TemporaryFile("w+", encoding="utf-8") as errors):
        process = multiprocessing.get_context("fork").Process(target=child, args=(out, errors))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode is not None, f"{words} takes longer than {PATIENCE} seconds"
        for stream in (out, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(words, process.exitcode, out.read(), errors.read())


def without_comparison():
    """Keeps sweep.py, run by run_script(), from starting compare.py, which takes longer than the runs of a test."""
    return mock.patch.object(sys, "executable", "/bin/true")


class Run:
    """A run folder."""

    def __init__(self, path):
        self.path = path

    def file(self, name):
        return os.path.join(self.path, name)

    def rows(self, name):
        return read_csv(self.file(name))[1]

    def columns(self, name):
        return read_csv(self.file(name))[0]

    def without_timing(self):
        """The rows of metrics.csv without the columns that a clock fills."""
        return [{k: v for k, v in row.items() if k not in TIMING} for row in self.rows("metrics.csv")]

    def json(self, name):
        return json.loads(self.bytes(name))

    @property
    def summary(self):
        return self.json("summary.json")

    def tensors(self, name="model.safetensors"):
        return read_safetensors(self.file(name))[0]

    def weights(self, name="model.safetensors"):
        """The bytes of all tensors, without the metadata, in which configs may differ."""
        return header_and_data(self.bytes(name))[1]

    def metadata(self, name="model.safetensors"):
        return read_safetensors(self.file(name))[1]

    def bytes(self, name):
        return Path(self.file(name)).read_bytes()

    def contents(self):
        """Every file's bytes by name."""
        files = [os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names]
        return {os.path.relpath(file, self.path): self.bytes(file) for file in sorted(files)}


class CliTest(unittest.TestCase):
    """A test with a folder of its own, which is the program's working directory and holds text.txt."""

    maxDiff = 2000

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="normscope-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.realpath(scratch.name)
        self.write("text.txt", TEXT)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, content):
        """Writes a file, and makes the folder that it lies in; its path."""
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def config(self, changes=None, name="tiny.json"):
        """Writes the tiny config with changes; its name."""
        self.write(name, json.dumps(merged(TINY, changes or {})))
        return name

    def streams(self, options):
        """Keywords of subprocess that run the program in the test's folder and keep what it writes, unless `options`
        say otherwise."""
        return {"cwd": self.folder, "env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                "encoding": "utf-8", **options}

    def call(self, *arguments, program=BINARY, **options):
        """Runs the program, which must end, whatever its exit code. `options`: of subprocess.run()."""
        return subprocess.run([program, *arguments], timeout=PATIENCE, check=False, **{"input": ""} |
                              self.streams(options))

    def assert_ended(self, result, code):
        """A process must have ended with `code`, and have been silent on stderr where that is 0. Returns its result."""
        self.assertEqual(result.returncode, code, f"{result.args}\n{result.stdout}\n{result.stderr}")
        if code == 0:
            self.assertEqual(result.stderr, "", result.args)
        return result

    def normscope(self, *arguments, code=0, **options):
        """Runs the program, which must exit with `code`, and be silent on stderr where that is 0."""
        return self.assert_ended(self.call(*arguments, **options), code)

    def refused(self, *arguments, code=2, says=(), lines=1, **options):
        """The program must fail with `code` and `lines` lines `[where] what`, which hold every word of `says`. It
        prints no result, changes no file of the test and adds no folder."""
        before = os.listdir(self.folder), self.files()
        result = self.normscope(*arguments, code=code, **options)
        self.assertEqual((os.listdir(self.folder), self.files()), before)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), lines, result.stderr)
        self.assertEqual(len(re.findall(r"(?m)^\[[a-z-]+\] ", result.stderr)), lines, result.stderr)
        for word in says:
            self.assertIn(word, result.stderr)
        self.assert_no_controls(result.stderr)

    def files(self):
        """{path: what a write or a replacement changes} of all files and links of the test."""
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        return {path: (about.st_ino, about.st_size, about.st_mtime_ns) for path in paths for about in [os.lstat(path)]}

    def script(self, name, *arguments, code=0):
        """Runs a script of scripts/, which must exit with `code`, and be silent on stderr where that is 0."""
        path = os.path.join(ROOT, "scripts", name)
        return self.assert_ended(run_script(path, *arguments, cwd=self.folder, env=environment()), code)

    def train(self, out, changes=None, *options, **expectations):
        """Trains the tiny config with changes into the folder `out`."""
        self.normscope("train", self.config(changes), "--out", out, *options, **expectations)
        return Run(self.path(out))

    def half_done(self, out="run", changes=None):
        """A run that failed after its last step, with an earlier checkpoint: in 25 steps, that of step 20."""
        run = Run(self.path(out))
        blocker = run.file("model.safetensors")  # a folder, which no file replaces
        os.makedirs(blocker)
        config = self.normscope("config", self.config(changes)).stdout
        self.write(run.file("config.json"), config)  # with it the folder is that of a run
        self.train(out, changes, "--resume", code=1)
        os.rmdir(blocker)
        return run

    def start(self, *arguments, program=BINARY, **options):
        """Starts the program and leaves it running; the end of the test kills it. `options`: of subprocess.Popen()."""
        process = subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, **self.streams(options))
        self.enterContext(process)  # its end closes the pipes, and waits
        self.addCleanup(process.kill)
        return process

    def wait_for(self, condition, pause=0.002):
        """Waits until `condition` holds, which is asked every `pause` seconds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"the condition did not hold within {PATIENCE} seconds")
            time.sleep(pause)

    def peak_rss_mb(self, *arguments, code=0):
        """The most memory that the program held; and its stderr."""
        with tempfile.TemporaryFile("w+") as errors:
            process = self.start(*arguments, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            messages = errors.read()
        self.assertEqual(process.returncode, code, messages)
        return usage.ru_maxrss / 1024, messages

    def wait_for_rows(self, path, count, process):
        """Waits until the CSV file has `count` rows, or the process has ended."""
        self.wait_for(lambda: process.poll() is not None or count_lines(path) > count)

    def start_training(self, out, changes, *options, rows=5, **more):
        """As train(), but leaves the run running when metrics.csv has so many rows. `more`: of subprocess.Popen()."""
        process = self.start("train", self.config(changes), "--out", out, *options, **more)
        self.wait_for_rows(self.path(out, "metrics.csv"), rows, process)
        return process

    def end(self, process, number):
        """Sends a signal to a process that was started; its exit code and stderr."""
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, errors

    def assert_no_controls(self, text):
        """Nothing in `text` can move a terminal's cursor."""
        self.assertIsNone(re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text), repr(text))

    def assert_valid_file(self, path):
        """Tensors fill the data of a safetensors file without a gap, aligned, and its checksum holds."""
        content = Path(path).read_bytes()
        header, data = header_and_data(content)
        metadata, end = header.pop("__metadata__"), 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            self.assertEqual(entry["data_offsets"][0], end, f"{path}: {name} leaves a gap")
            end = entry["data_offsets"][1]
        self.assertEqual(len(data), end, f"{path}: bytes that belong to no tensor")
        self.assertEqual((len(content) - len(data)) % 8, 0, f"{path}: data that is not aligned")
        self.assertEqual(metadata["checksum"][:16], f"{fnv1a(data):016x}", path)
        read_safetensors(path)  # whose shapes must fit their bytes, and the checksum its header

    def assert_same_results(self, run, other):
        """Two run folders hold the same files, with the same numbers and bytes, times aside."""
        self.assertEqual(run.contents().keys(), other.contents().keys())
        for name in run.contents().keys() - {"metrics.csv", "summary.json"}:
            self.assertTrue(run.bytes(name) == other.bytes(name), f"{name} differs")
        self.assertEqual(run.without_timing(), other.without_timing())
        self.assertEqual(*({key: value for key, value in one.summary.items() if key not in TIMING | CIRCUMSTANCES}
                           for one in (run, other)))
