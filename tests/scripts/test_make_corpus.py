#!/usr/bin/python3
"""scripts/make_corpus.py: texts of every kind become one, and files that are refused are named with the reason. The
long form converts documents and images, where pandoc and tesseract are installed."""

import os
import shutil
import subprocess
import unittest
import zipfile
from unittest import mock

from cli import LONG, ROOT, TEXT, CliTest

from lib.figures.layout import Figure, FigureCanvasAgg, look  # in scripts, which cli.py puts on the path

PAGE = ("<!DOCTYPE html><html><head><title>t</title><script>var x = 1;</script></head><body>"
        "<p>Whales &amp; <b>waves</b>.</p></body></html>")


class MakeCorpus(CliTest):
    def make(self, *arguments, code=0):
        return self.script("make_corpus.py", *arguments, code=code)

    def text(self, name="out.txt"):
        with open(self.path(name), encoding="utf-8", newline="") as file:
            return file.read()

    def test_texts_and_other_files(self):
        os.makedirs(self.path("in/.git"))
        for name, content in {
                "a10.txt": "naïve\r\nend", "b.md": "# Title\n".encode("utf-8-sig"), "a2.txt": "two",
                "c.txt": "caf\u00e9".encode("cp1252"), "d.bin": b"ELF\0\1\2", "e\x1b.txt": b"", ".git/config": "secret",
                "latin.html": PAGE.replace("Whales", "Wh\u00e4les").encode("cp1252")}.items():
            self.write(f"in/{name}", content)
        os.mkfifo(self.path("in", "pipe"))
        self.write("out.txt", "old")
        os.symlink("out.txt", self.path("link.txt"))
        os.symlink("loop.txt", self.path("in", "loop.txt"))
        done = self.make("in", "-o", "link.txt", "--overwrite")
        self.assertTrue(os.path.islink(self.path("link.txt")))
        self.assertEqual(self.text(), "two\nnaïve\nend\n# Title\n")
        table = [line.split("  ") for line in done.stdout.splitlines()]
        advice = "convert a text with iconv -f ENCODING -t UTF-8"
        self.assertEqual([[part.strip() for part in row if part.strip()] for row in table], [
            ["4", "in/a2.txt", "utf-8"], ["10", "in/a10.txt", "utf-8"], ["8", "in/b.md", "utf-8"],
            ["refused", "in/c.txt", f"no UTF-8 at byte 3; {advice}"],
            ["refused", "in/d.bin", "not text: it has NUL bytes"], ["refused", r"in/e\x1b.txt", "no text in it"],
            ["refused", "in/latin.html", f"no UTF-8 at byte {PAGE.index('ales')}; {advice}"],
            ["refused", "in/loop.txt", "Too many levels of symbolic links"],
            [f"wrote link.txt: 22 characters, {len(set(self.text()))} different"]])

    def test_mistakes_are_named(self):
        """Arguments and exit code, each word in what is printed, and all of stderr as a pattern."""
        self.enterContext(mock.patch.dict(os.environ, PATH="/nowhere"))  # without pdftotext, pandoc and tesseract
        os.symlink("loop", self.path("loop"))
        for name, content in (("x.pdf", "%PDF"), ("x.html", PAGE), ("x.png", "x"), ("y.txt", "taken")):
            self.write(name, content)
        for arguments, code, printed, error in (
                ("x.pdf x.html x.png -o out.txt", 1, (
                    "x.pdf  needs pdftotext: apt-get install poppler-utils",
                    "x.html  needs pandoc: apt-get install pandoc",
                    "x.png  needs tesseract: apt-get install tesseract-ocr"),
                 "nothing taken; name files or folders with text"),
                ("nowhere.txt -o out.txt", 1, ["refused  nowhere.txt  No such file"], "nothing taken; .*"),
                (". -o y.txt --overwrite", 2, (), "y.txt: is an input, and would be replaced; name another file"),
                ("y.txt none.txt -o new.txt", 1, ["wrote new.txt: 6 characters"],
                 "refused of the paths named: none.txt; the text lacks them"),
                ("text.txt -o text.txt/out.txt", 1, (), ".*text.txt: .*"),
                ("text.txt -o /dev/null", 1, (), "/dev/null: .* exists and is not a file"),
                ("text.txt -o loop", 1, (), "loop: .* exists and is not a file")):
            with self.subTest(arguments):
                done = self.make(*arguments.split(), code=code)
                self.assertRegex(done.stderr, rf"\A\[corpus\] {error}\n\Z")
                for words in printed:
                    self.assertIn(words, done.stdout)
                self.assertFalse(os.path.exists(self.path("out.txt")))
        self.assertEqual(self.text("new.txt"), "taken\n")

    @unittest.skipUnless(shutil.which("pdftotext"), "no pdftotext")
    def test_train_on_a_pdf_and_on_this_project(self):
        figure = Figure()
        for i in range(12):
            figure.text(0.1, 0.9 - i / 15, f"The norm stands before each sublayer, line {i}.")
        with look():
            figure.savefig(self.path("paper.pdf"))
        done = self.make("paper.pdf", os.path.join(ROOT, "src", "engine", "ops"), "-o", "out.txt")
        self.assertIn("  paper.pdf  pdftotext", done.stdout)
        self.assertIn("The norm stands before each sublayer, line 3.\n", self.text())
        self.assertIn("namespace normscope", self.text())
        run = self.train("run", {"data": {"path": "out.txt"}, "train": {"steps": 2}})
        self.assertEqual(run.summary["vocab"], len(set(self.text())))
        self.write("broken.pdf", "no PDF")
        self.assertRegex(self.make("broken.pdf", "text.txt", "-o", "new.txt", code=1).stdout,
                         "refused  broken.pdf  pdftotext: ")

    @unittest.skipUnless(LONG and shutil.which("pandoc"), "the long form, with pandoc")
    def test_documents(self):
        self.write("x.html", PAGE)
        for kind in ("docx", "odt", "epub"):
            subprocess.run(["pandoc", "x.html", "-o", f"x.{kind}", "--metadata", "title=t"], cwd=self.folder,
                           check=True)
            self.assertTrue(zipfile.is_zipfile(self.path(f"x.{kind}")))
        for kind in ("html", "docx", "odt", "epub"):
            self.make(f"x.{kind}", "-o", "out.txt", "--overwrite")
            self.assertIn("Whales & waves.\n", self.text())
            self.assertNotIn("var x", self.text())

    @unittest.skipUnless(LONG and shutil.which("tesseract"), "the long form, with tesseract")
    def test_images(self):
        figure = Figure(figsize=(6, 1.5))
        FigureCanvasAgg(figure)
        figure.text(0.05, 0.4, "Norms before sums", size=32)
        with look():
            figure.savefig(self.path("x.png"), dpi=150)
        self.make("x.png", "-o", "out.txt")
        self.assertIn("Norms before sums", self.text())


class LargeText(CliTest):
    def test_at_most_six_bytes_of_memory_a_byte(self):
        step = self.config({"train": {"steps": 1}, "eval": {"every": 0}, "data": {"val_fraction": 0}})
        size = 32 << 20
        self.write("large.txt", (TEXT * (size // len(TEXT) + 1))[:size])
        peak, _ = self.peak_rss_mb("train", step, "--out", "run", "--set", "data.path=large.txt")
        self.assertLess(peak, 6 * (size >> 20) + 16)  # 16 MiB for the program itself


if __name__ == "__main__":
    unittest.main()
