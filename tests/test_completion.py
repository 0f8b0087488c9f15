#!/usr/bin/python3
"""`normscope completion`: what shells make of it. zsh and fish are asked where they are installed."""

import json
import os
import shutil
import subprocess
import unittest

from cli import CliTest


class Completion(CliTest):
    def setUp(self):
        super().setUp()
        for shell in ("bash", "zsh", "fish"):
            self.write(f"completion.{shell}", self.normscope("completion", shell).stdout)
        os.makedirs(self.path("runs/deep"))

    def shell(self, *command):
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def bash(self, *words):
        """What bash offers for the last of the words."""
        listed = " ".join(map(json.dumps, ["normscope", *words]))
        return self.shell("bash", "-c", f"source completion.bash; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _normscope; "
                          'printf "%s\\n" "${COMPREPLY[@]}"')

    def test_bash(self):
        self.assertEqual(self.bash("tr"), ["train"])
        self.assertEqual(self.bash("train", "--ov"), ["--overwrite"])
        self.assertEqual(self.bash("compare", "--ov"), [])
        self.assertEqual(self.bash("train", "--set", "model.norm_pl"), ["model.norm_placement="])
        self.assertEqual(self.bash("compare", "runs/"), ["runs/deep"])
        commands = [line.split()[0] for line in self.normscope("--help").stdout.splitlines() if line.startswith("  ")]
        self.assertEqual(self.bash(""), commands)
        keys = json.loads(self.normscope("config", "--schema").stdout)["properties"]["train"]["properties"]
        self.assertEqual(self.bash("probe", "--set", "train."), [f"train.{key}=" for key in keys])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh(self):
        said = self.shell("zsh", "-f", "-c", "autoload -U compinit && compinit -D; source completion.zsh; whence -w _normscope; "
                          "words=(normscope tr); COMP_WORDS=(normscope tr); COMP_CWORD=1; print ${_comps[normscope]}")
        self.assertEqual(said[:2], ["_normscope:", "function"])
        self.assertIn("_bash_complete", said)

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish(self):
        def fish(line):
            return [word.split("\t")[0] for word in subprocess.run(
                ["fish", "--no-config", "-c", f"source completion.fish; complete -C '{line}'"], cwd=self.folder, capture_output=True,
                text=True, timeout=60, check=True).stdout.splitlines()]

        self.assertEqual(fish("normscope tra"), ["train"])
        self.assertEqual(fish("normscope train --ov"), ["--overwrite"])
        self.assertEqual(fish("normscope train --set model.norm_pl"), ["model.norm_placement="])
        self.assertIn("runs/deep", [word.rstrip("/") for word in fish("normscope compare runs/")])

    def test_another_shell_is_refused(self):
        self.refused("completion", "ksh", says=["got ksh; expected bash, zsh or fish"])


if __name__ == "__main__":
    unittest.main()
