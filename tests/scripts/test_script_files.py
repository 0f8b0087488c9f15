#!/usr/bin/python3
"""Files that scripts write: replaced whole or not at all, under every name, and errors that name the file."""

import contextlib
import errno
import json
import os
import struct
import unittest
from pathlib import Path
from unittest import mock

from made_runs import MadeRuns

from lib.base import files
from lib.base.command import ROOT, ScriptError
from lib.logs import np, run_text, safetensors_io


def failing(*codes):
    """A stand-in for os.fsync that fails with each of the error codes in turn."""
    return mock.patch.object(os, "fsync", side_effect=[OSError(code, os.strerror(code)) for code in codes])


class Files(MadeRuns):
    def test_a_name_may_be_as_long_as_the_file_system_allows(self):
        path = self.root / ("n" * 255)
        for content in ("one", b"two", "é\r\n"):
            files.write_atomically(path, content)
            self.assertEqual(path.read_bytes(), content.encode() if isinstance(content, str) else content)
        safetensors_io.write(path, {"x": np.arange(3.0)})
        self.assertEqual(safetensors_io.read(path)[0]["x"].tolist(), [0, 1, 2])
        self.assertEqual(sorted(os.listdir(self.root)), sorted(["corpus.txt", path.name]))

    def test_texts_are_joined_as_the_program_joins_them(self):
        paths = [self.root / "one.txt", self.root / "two.txt"]
        for path, text in zip(paths, ("\ufeffzx", "\ufeffxyé")):
            path.write_text(text, encoding="utf-8")
        self.assertEqual(run_text.split_text({"path": paths, "val_path": "", "val_fraction": 0}), ("zx\nxyé", ""))

    def test_bf16_tensors_of_other_programs_are_read(self):
        path = self.root / "other.safetensors"
        header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes.fromhex("c03f" "00c0"))
        self.assertEqual(safetensors_io.read(path)[0]["w"].tolist(), [1.5, -2])

    def test_a_link_stays_a_link_and_the_mode_is_the_users(self):
        target, link = self.root / "target", self.root / "link"
        link.symlink_to("target")
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        for mode in (0o640, 0o604):
            files.write_atomically(link, "text")
            self.assertEqual((link.is_symlink(), target.read_text()), (True, "text"))
            self.assertEqual(target.stat().st_mode & 0o777, mode)
            target.chmod(0o604)

    def test_a_folder_is_locked_by_one_process(self):
        files.lock(self.root)
        with self.assertRaisesRegex(ScriptError, "another process is writing here"):
            files.lock(self.root)

    def test_a_file_system_that_cannot_sync_is_tolerated(self):
        path = self.root / "x"
        with failing(errno.EINVAL, errno.ENOTSUP):
            files.write_atomically(path, "text")
        self.assertEqual(path.read_text(), "text")

    def test_an_error_names_the_file_and_leaves_the_old_one(self):
        path = self.root / "x"
        files.write_atomically(path, "old")
        is_no_file, sound = "cannot be written: it exists and is not a file", contextlib.nullcontext()
        for target, fault, error, words in (
                (path, failing(errno.ENOSPC), OSError, f": '{path}'"),
                (path, mock.patch.object(os, "replace", side_effect=OSError(errno.EIO, "bad")), OSError, f": '{path}'"),
                (path, mock.patch.object(os, "fsync", side_effect=KeyboardInterrupt), KeyboardInterrupt, ""),
                (self.root / "none" / "x", sound, FileNotFoundError, f": '{self.root / 'none' / 'x'}'"),
                (Path("/dev/null"), sound, ScriptError, f"/dev/null: {is_no_file}"),
                (self.root, sound, ScriptError, f"{self.root}: {is_no_file}")):
            with self.subTest(target=target, error=error):
                with fault, self.assertRaises(error) as caught:
                    files.write_atomically(target, "new")
                self.assertTrue(str(caught.exception).endswith(words), caught.exception)
                self.assertEqual((path.read_text(), sorted(os.listdir(self.root))), ("old", ["corpus.txt", "x"]))

    def test_no_script_replaces_an_input_a_runs_file_or_what_it_has_not_made(self):
        run, text = self.make("run"), self.root / "text.txt"
        text.write_text("mine")
        (self.root / "user").mkdir()
        (self.root / "user/README.md").write_text("mine")
        (self.root / "mine/pictures").mkdir(parents=True)
        (self.root / "mine/pictures/xiong.png").write_text("mine")
        outputs = {**{f"{name}.png": run / name for name in os.listdir(run)}, "photo.png": None, "index.html": None}
        for name, target in outputs.items():
            (self.root / name).write_text("mine") if target is None else (self.root / name).symlink_to(target)
        os.link(text, self.root / "hard.txt")
        rows = [("plot.py", "layers", run, "-o", name) for name in outputs if name.endswith(".png")]
        rows += [("report.py", run, "-o", name) for name in outputs if name.endswith(".html")]
        rows += [("make_corpus.py", text, "-o", name, "--overwrite") for name in (text, "hard.txt", *run.iterdir())]
        rows += [("make_corpus.py", text, "-o", "photo.png")]
        rows += [("reproduce.py", "xiong", "--quick", "--out", name) for name in ("user", "mine", ROOT / "configs/papers",
                                                                               "")]
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        for command in rows:
            with self.subTest(command[0], output=command[-1]):
                done = self.call(*command)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertEqual({path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}, before)
        for name in ("new.png", "new.svg", "new.pdf", "new.html"):
            with self.subTest(name):
                command = ("report.py", run) if name.endswith("html") else ("plot.py", "steps", run)
                for _ in range(2):  # its own picture is replaced
                    self.assertEqual(self.call(*command, "-o", name).returncode, 0)


if __name__ == "__main__":
    unittest.main()
