#!/usr/bin/python3
"""Every command and every JSON example of README.md works when it is pasted, in order, in a fresh copy of the tree. Models are
made small, training is cut to a few steps and the text to its beginning; the commands stay as they are, but for bench."""

import importlib.util
import json
import os
import re
import shutil
import sys
import unittest

from cli import BINARY, ROOT, TEXT, CliTest, environment

# Install, build and test everything; load from the network; count in hours.
NOT_HERE = ("scripts/quickstart.sh", "scripts/test.sh", "scripts/get_tinyshakespeare.sh", "cd build", "ctest", "../tests/")


def readme(name="README.md"):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def blocks(language, name="README.md"):
    """The text of every fenced block."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme(name), re.MULTILINE | re.DOTALL)


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
        line = line.replace("$normscope bench", "$normscope bench --steps 20")
        line = line.replace("$normscope", "build/normscope")
        done = self.call("-c", line, program="bash")
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def examples(self):
        """The experiment and the grid."""
        experiment, grid = blocks("json")
        return experiment, grid

    def test_commands(self):
        self.write("my_grid.json", self.examples()[1])
        shutil.copy(self.path("data", "austen.txt"), self.path("data", "tinyshakespeare.txt"))
        for placement in ("pre", "post"):  # what quickstart.sh leaves
            self.run_line(f"$normscope train configs/deep_{placement}.json --out runs/quickstart/{placement}")
        claims = ["$normscope " + line for line in re.findall(r"^\| [^|]* \| `((?:train|probe) [^`]*)`", readme(), re.MULTILINE)]
        self.assertGreater(len(claims), 3)
        commands = 0
        for text in ["\n".join(claims), *blocks("sh")]:
            for number, line in enumerate(text.splitlines()):
                if line in claims:
                    line += f" --out runs/claim-{number}"
                if line.startswith(NOT_HERE) or not line.startswith(("$normscope ", "scripts/")):
                    continue
                with self.subTest(line):
                    self.run_line(line)
                    commands += 1
        self.assertGreater(commands, 20)

    def test_what_stands_around_a_run(self):
        for placement in ("pre", "post"):
            self.run_line(f"$normscope train configs/deep_{placement}.json --out runs/quickstart/{placement}")
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
        experiment, grid = self.examples()
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
