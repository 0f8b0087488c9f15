#!/usr/bin/python3
"""Every command of README.md, in blocks and in tables, works when all are pasted from top to bottom in a fresh copy of
the tree; the pictures and pages that it names are written, and its JSON examples are valid. Models are made small,
training is cut to a few steps and the text to its beginning; the commands stay as they are, except bench, which gets
the small config."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from cli import BINARY, ROOT, TEXT, CliTest, environment, run_script
from mutants import source_path
from made_runs import draw_once

from lib.base.tables import markdown_cells  # in scripts, which cli.py puts on the path
from lib.sweeps import sweep_time

NOT_HERE = ("scripts/test.sh", "scripts/get_tinyshakespeare.sh")  # they run all tests, and need the network
FAILING = "check configs/deep_pre.json --set model.norm=batchnorm"  # as its row of the table says
BENCH = (r"(?m)^[\d.]+ GFLOP/s, [\d.]+% of SGEMM's [\d.]+ in float32$(?s:.*)"
         r"^attention +\d+\.\d{3} +\d+\.\d% +\d+\.\d$")
THROUGH_SHELL = {"plot.py", "sweep.py", "measure.py"}  # scripts whose first command proves the first line of their file
SHELL_ONLY = re.compile(r"[$`|;<>*?~{}]|(?<!&)&(?!&)")  # what only a shell understands


NUMBERS = {15: "Fifteen", 16: "Sixteen", 17: "Seventeen"}


def readme(name="README.md"):
    return Path(ROOT, name).read_text(encoding="utf-8")


def blocks(language, name="README.md"):
    """The text of every fenced block."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme(name), re.MULTILINE | re.DOTALL)


def commands_of_table(table):
    """The commands in backticks in the column of a table whose title is "command"."""
    titles, _, *rows = map(markdown_cells, table.splitlines())
    cells = [row[titles.index("command")] for row in rows] if "command" in titles else []
    return [command for cell in cells for command in re.findall(r"`((?:build|scripts)/[^`]*)`", cell)]


def commands(text):
    """The lines of the blocks for a shell and the commands of the tables, from top to bottom."""
    lines = []
    for block, table in re.findall(r"^```sh\n(.*?)^```$|^((?:\|[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL):
        lines += block.replace("\\\n", "").splitlines() if block else commands_of_table(table)
    return lines


def copy_tree(target):
    """A copy of the tree, with a small text and small models."""
    for name in ("configs", "data", "scripts", "src", "README.md"):
        source, copy = os.path.join(ROOT, name), os.path.join(target, name)
        if os.path.isdir(source):
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("tinyshakespeare.txt", "__pycache__"))
        else:
            shutil.copy(source, copy)
    build = Path(target, "build")
    build.mkdir()
    (build / "normscope").symlink_to(BINARY)
    Path(target, "scripts", "build.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    Path(target, "data", "austen.txt").write_text(TEXT, encoding="utf-8")  # a part of it
    for name in ("quickstart.json", "nanogpt_cpu.json", "nanochat.json"):
        file = Path(target, "configs", name)
        config = file.read_text(encoding="utf-8")
        for key, value in {"n_layer": 3, "d_model": 16, "steps": 5, "batch_size": 2, "warmup_steps": 0}.items():
            config, count = re.subn(rf'"{key}": \d+', f'"{key}": {value}', config)
            assert count == 1 or key == "warmup_steps", f"{name} has {count} values of {key}; expected one"
        file.write_text(config, encoding="utf-8")


class Readme(CliTest):
    """All tests share a copy of the tree, in which the quick start has run."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="normscope-readme-")
        cls.addClassCleanup(scratch.cleanup)
        cls.tree = os.path.realpath(scratch.name)
        cls.shell_has_run = set()
        copy_tree(cls.tree)
        draw_once()
        first = cls("setUp")
        first.setUp()
        first.run_line("scripts/quickstart.sh")

    def setUp(self):
        self.folder = self.tree

    def run_line(self, line):
        """A line as a shell takes it; its scripts run in children of this process, which has Matplotlib loaded."""
        small_bench = "normscope bench configs/quickstart.json --steps 20 --threads 1"
        line = re.sub("normscope bench(?= *(#|$))", small_bench, line)
        expected = 1 if FAILING in line else 0
        parts = [shlex.split(part, comments=True) for part in line.split("&&")]
        scripts = {os.path.basename(words[0]) for words in parts if words and words[0].endswith(".py")}
        if SHELL_ONLY.search(line) or scripts & THROUGH_SHELL - self.shell_has_run:
            self.shell_has_run.update(scripts)
            parts = [["bash", "-c", line]]
        for words in filter(None, parts):
            if words[0].endswith(".py"):
                done = run_script(*words, cwd=self.folder)
            else:
                done = self.call(*words[1:], program=words[0] if words[0] == "bash" else self.path(words[0]))
            self.assertEqual(done.returncode, expected, f"{line}\n{done.stdout}\n{done.stderr}")
            if "normscope bench" in line:
                self.assertRegex(done.stdout, BENCH)

    def test_commands(self):
        shutil.copy(self.path("data", "austen.txt"), self.path("data", "tinyshakespeare.txt"))
        first, *lines = commands(readme())
        self.assertTrue(first.startswith("scripts/quickstart.sh "), first)  # which setUpClass has run
        lines = [line for line in lines if not line.startswith(NOT_HERE)]
        self.assertGreater(len(lines), 25)
        for line in lines:
            with self.subTest(line):
                self.run_line(line)
        self.assertEqual(self.shell_has_run & THROUGH_SHELL, THROUGH_SHELL)
        made = {file.name for file in Path(self.path("runs")).rglob("*")}
        named = {name for name in re.findall(r"[\w./]+\.(?:png|html)\b", readme()) if not name.startswith("data/")}
        self.assertGreater(len(named), 5)
        self.assertLessEqual({os.path.basename(name) for name in named}, made)

    def test_snippets_of_the_scripts_page(self):
        for code in blocks("python", "scripts/README.md"):
            if "tensorboardX" in code and importlib.util.find_spec("tensorboardX") is None:
                continue
            self.normscope("-c", code, program=sys.executable)
        self.assertGreater(os.path.getsize(self.path("layers.pdf")), 10_000)
        (job,) = blocks("sh", "scripts/README.md")
        for _ in range(2):  # the second one goes on
            done = self.call("-c", job, program="sh", env=environment(SLURM_SUBMIT_DIR=self.folder))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing to do", done.stdout)

    def test_json_examples(self):
        experiment, grid = blocks("json")
        self.write("mine.json", experiment)
        resolved = json.loads(self.normscope("config", "mine.json").stdout)
        for section, keys in json.loads(experiment).items():
            for key, value in keys.items() if isinstance(keys, dict) else ():
                self.assertEqual(resolved[section][key], value)
        self.normscope("train", "mine.json", "--set", "model.n_layer=2")
        self.write("grid.json", grid)
        with mock.patch.object(sweep_time, "expected_seconds", lambda *_: 1):
            done = run_script(self.path("scripts", "sweep.py"), "grid.json", "--dry-run", cwd=self.folder)
        self.assertIn("15 runs", done.stdout, done.stderr)

    def test_files_that_are_named_exist(self):
        named = re.findall(r"(?<![\w/])((?:scripts|tests|src|configs|data|\.vscode)/[\w./-]*\w)",
                           readme() + readme("scripts/README.md"))
        self.assertGreater(len(named), 20)
        for name in set(named):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)

    def test_the_table_of_tests_has_every_file(self):
        for file in Path(ROOT, "tests").glob("*/test_*.py"):
            self.assertIn(file.stem, readme("tests/README.md"))

    def test_functions_that_the_folders_readmes_name_exist(self):
        files = [file for folder in ("src", "scripts", "tests") for file in Path(ROOT, folder).rglob("*")
                 if file.suffix in (".h", ".cpp", ".py")]
        code = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for name in ("src/README.md", "scripts/README.md", "src/logs/README.md", "tests/README.md"):
            for function in re.findall(r"`(?:\w+(?:::|\.))*(\w+)\(\)`", readme(name)):
                self.assertRegex(code, rf"\b{function}\(", name)

    def test_sizes_of_the_engine_and_of_the_evening(self):
        """Both READMEs count lines of code, and round to hundreds."""
        def lines_of(files):
            lines = [line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()]
            return f"{round(sum(line != '' and not line.startswith('//') for line in lines), -2):,}"

        evening = re.search(r"## Start here: an evening.*?(?=^What may be)", readme("src/README.md"), re.S | re.M)[0]
        files = [source_path(name) for name in re.findall(r"`([\w./]+\.(?:h|cpp))`", evening)]
        engine = [file for file in Path(ROOT, "src", "engine").rglob("*") if file.suffix in (".h", ".cpp")]
        self.assertIn(f"{NUMBERS[len(files)]} files, {lines_of(files)} lines of code", evening)
        self.assertIn(f"is {lines_of(engine)} lines of code", readme())
        self.assertIn(f"an evening's reading of\n{lines_of(files)}", readme())
        self.assertIn(f"{lines_of(engine)} lines of code", readme("src/README.md"))


if __name__ == "__main__":
    unittest.main()
