#!/usr/bin/python3
"""Every command of README.md, those of its tables too, works when all are pasted from top to bottom in a fresh copy of the tree,
and the pictures and pages that it names are there; so do its JSON examples. Models are made small, training is cut to a few steps
and the text to its beginning; the commands stay as they are, but for bench."""

import importlib.util
import json
import os
import re
import shutil
import sys
import unittest
from pathlib import Path

from cli import BINARY, ROOT, TEXT, CliTest, environment

NOT_HERE = ("scripts/test.sh", "scripts/get_tinyshakespeare.sh")  # all tests; the network
FAILING = "check configs/deep_pre.json --set model.norm=batchnorm"  # as its row of the table says


def readme(name="README.md"):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def blocks(language, name="README.md"):
    """The text of every fenced block."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme(name), re.MULTILINE | re.DOTALL)


def commands():
    """The lines of the blocks for a shell and the commands of the tables, from top to bottom."""
    found = re.findall(r"^```sh\n(.*?)^```$|^\|[^|\n]*\| `([^`\n]*)` \|", readme(), re.MULTILINE | re.DOTALL)
    return [line for block, cell in found for line in (block or cell).replace("\\\n", "").splitlines()]


class Readme(CliTest):
    def setUp(self):
        super().setUp()
        for name in ("configs", "data", "scripts", "src", "README.md"):
            source, target = os.path.join(ROOT, name), self.path(name)
            if os.path.isdir(source):
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("tinyshakespeare.txt", "__pycache__"))
            else:
                shutil.copy(source, target)
        os.mkdir(self.path("build"))
        os.symlink(BINARY, self.path("build", "normscope"))
        self.write("scripts/build.sh", "#!/bin/sh\n")
        self.write("data/austen.txt", TEXT)  # a part of it
        for name in ("quickstart.json", "nanogpt_cpu.json"):
            with open(self.path("configs", name), encoding="utf-8") as file:
                config = file.read()
            for key, value in {"n_layer": 3, "d_model": 16, "steps": 2, "batch_size": 2}.items():
                config, count = re.subn(rf'"{key}": \d+', f'"{key}": {value}', config)
                self.assertEqual(count, 1, key)
            self.write(f"configs/{name}", re.sub(r'"(decay_steps|warmup_steps)": \d+', r'"\1": 0', config))

    def run_line(self, line):
        """As a shell of the reader's takes it."""
        line = line.replace("normscope bench", "normscope bench --steps 20")
        done = self.call("-c", line, program="bash")
        self.assertEqual(done.returncode, 1 if FAILING in line else 0, f"{line}\n{done.stdout}\n{done.stderr}")

    def test_commands(self):
        shutil.copy(self.path("data", "austen.txt"), self.path("data", "tinyshakespeare.txt"))
        lines = [line for line in commands() if not line.startswith(NOT_HERE)]
        self.assertGreater(len(lines), 25)
        for line in lines:
            with self.subTest(line):
                self.run_line(line)
        made = {file.name for file in Path(self.path("runs")).rglob("*")}
        named = {name for name in re.findall(r"[\w./]+\.(?:png|html)\b", readme()) if not name.startswith("data/")}
        self.assertGreater(len(named), 5)
        self.assertLessEqual({os.path.basename(name) for name in named}, made)

    def test_what_stands_around_a_run(self):
        self.run_line("scripts/quickstart.sh")
        for code in blocks("python", "scripts/README.md"):
            if "wandb" in code and importlib.util.find_spec("wandb") is None:
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
        self.assertIn("21 runs", self.script("sweep.py", "grid.json", "--dry-run").stdout)

    def test_files_that_are_named_exist(self):
        named = re.findall(r"(?<![\w/])((?:scripts|tests|src|configs|data|\.vscode)/[\w./-]*\w)", readme() + readme("scripts/README.md"))
        self.assertGreater(len(named), 20)
        for name in set(named):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)


if __name__ == "__main__":
    unittest.main()
