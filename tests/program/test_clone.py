#!/usr/bin/python3
"""A clone has the repository's bytes, whatever line ends its user's Git is set to write."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / ".git").exists() or shutil.which("git") is None:
    print("skipped: no Git repository, or no git")
    sys.exit(77)


class Clone(unittest.TestCase):
    def clone(self, autocrlf):
        """{path: (SHA-256 of the bytes, executable)} of every file of a clone made with this core.autocrlf."""
        with tempfile.TemporaryDirectory() as folder:
            # Git refuses to read a repository of another owner, as in a container's bind mount, unless it is called
            # safe.
            safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
            subprocess.run(["git", "clone", "--quiet", "--depth=1", "-c", f"core.autocrlf={autocrlf}", ROOT.as_uri(),
                            folder],
                           env={**os.environ, **safe}, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            files = [path for path in Path(folder).rglob("*") if path.is_file()
                     and ".git" not in path.relative_to(folder).parts]
            return {str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(),
                                                    os.access(path, os.X_OK))
                    for path in files}

    def test_git_for_windows_leaves_every_byte(self):
        plain = self.clone("false")
        self.assertGreater(len(plain), 100)
        changed = {path for path, state in self.clone("true").items() if state != plain[path]}
        self.assertEqual(changed, set())
        self.assertEqual(plain["data/austen.txt"][0],
                         "21cf93e0b46793fa81582013a23b52a7b04f3a6ba3ca11fb038da04f1c418eeb")


if __name__ == "__main__":
    unittest.main()
