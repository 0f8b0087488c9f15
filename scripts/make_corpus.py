#!/usr/bin/env python3
"""Makes one UTF-8 text for training from files and folders: UTF-8 texts, source code and Markdown are taken as they
are; HTML, DOCX, ODT and EPUB are converted by pandoc, PDF by pdftotext, images by tesseract. Line ends become \\n; all
other characters stay (`iconv -t ASCII//TRANSLIT` replaces rare ones)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.command import Parser, ScriptError, printable, run_command
from lib.files import write_atomically

EXAMPLES = """examples:
  scripts/make_corpus.py src README.md -o runs/self.txt           this project's own source
  scripts/make_corpus.py thesis.pdf notes/ -o thesis.txt
  build/normscope train configs/quickstart.json --set data.path=thesis.txt --out runs/thesis
"""
PANDOC = ("pandoc", "pandoc", ["--to=plain", "--wrap=none", "--sandbox", "{}"])
PDF = ("pdftotext", "poppler-utils", ["-enc", "UTF-8", "-nopgbrk", "{}", "-"])
IMAGE = ("tesseract", "tesseract-ocr", ["{}", "stdout"])
TOOLS = {  # by ending: program, Debian's package, arguments
    **dict.fromkeys((".html", ".htm", ".xhtml", ".docx", ".odt", ".epub"), PANDOC), ".pdf": PDF,
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"), IMAGE)}


class Refused(Exception):
    """A file from which no text is taken; the message is the reason."""


def extracted(path):
    """(text of a file, name of the program that extracted it or "utf-8"). Refused if there is none."""
    tool, how = TOOLS.get(path.suffix.lower()), "utf-8"
    if tool is None:
        content = path.read_bytes()
    else:
        how, package, arguments = tool
        if not shutil.which(how):
            raise Refused(f"needs {how}: apt-get install {package}")
        name = os.path.abspath(path)  # begins with no dash, as an option does
        command = [how, *(name if word == "{}" else word for word in arguments)]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if process.returncode != 0:
            *_, last = (process.stderr.decode("utf-8", "replace").strip() or "failed").split("\n")
            raise Refused(f"{how}: {last}")
        content = process.stdout
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise Refused(f"no UTF-8 at byte {error.start}; convert a text with iconv -f ENCODING -t UTF-8") from None
    if "\0" in text or not text.strip():
        raise Refused("not text: it has NUL bytes" if "\0" in text else "no text in it")
    return text if text.endswith("\n") else text + "\n", how


def found_files(paths, output):
    """Yields the files named and those below folders, in order, without the output itself, hidden files, and pipes,
    which have no end."""
    for path in paths:
        below = [p for p in sorted(path.rglob("*")) if (p.is_file() or not p.exists())
                 and not any(part.startswith(".") for part in p.relative_to(path).parts)]
        yield from (p for p in (below if path.is_dir() else [path]) if p.resolve() != output)


def run():
    """Reads the command line and writes the text; prints a table of the files with their characters or why they were
    refused."""
    parser = Parser("corpus", __doc__, epilog=EXAMPLES)
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="file, or folder with all that is below it")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, type=Path, help="the text to write")
    args = parser.parse_args()
    output = args.output.resolve()
    if output.exists() and not output.is_file():
        parser.error(f"argument -o: {printable(args.output)} is there and is no file")
    parts = []
    for file in found_files(args.paths, output):
        try:
            text, how = extracted(file)
            parts.append(text)
            print(f"{len(text):>12,}  {printable(file)}  {how}")
        except (Refused, OSError) as error:
            print(f"{'refused':>12}  {printable(file)}  {printable(getattr(error, 'strerror', None) or error)}")
    if not parts:
        raise ScriptError("nothing taken; name files or folders with text", 1)
    corpus = "".join(parts)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, corpus)
    print(f"wrote {printable(args.output)}: {len(corpus):,} characters, {len(set(corpus))} different")


if __name__ == "__main__":
    sys.exit(run_command(run, "corpus"))
