#!/usr/bin/env python3
"""Makes one UTF-8 text for training from files and folders: UTF-8 texts, source code and Markdown are taken as they
are; HTML, DOCX, ODT and EPUB are converted by pandoc, PDF by pdftotext, images by tesseract. Line ends become \\n, each
file ends with one, and a byte order mark at its start is left out; all other characters stay (`iconv -t
ASCII//TRANSLIT` replaces rare ones). The texts
are in the order of PATHs, below a folder by name and the numbers in it; a file that two PATHs hold is taken twice.
A line says why a file is refused; the exit code is 1 if it is a PATH itself. Below a folder, hidden files, links to
folders, pipes and devices are left out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, ScriptError, main, printable
from lib.base.files import natural_order, require_output, write_atomically

EXAMPLES = """examples:
  scripts/make_corpus.py src README.md -o runs/self.txt           this project's own source
  scripts/make_corpus.py thesis.pdf notes/ -o thesis.txt
  build/normscope train configs/quickstart.json --set data.path=thesis.txt --out runs/thesis
"""
PAGES = (".html", ".htm", ".xhtml")
PANDOC = ("pandoc", "pandoc", ["--to=plain", "--wrap=none", "--sandbox", "{}"])
PDF = ("pdftotext", "poppler-utils", ["-enc", "UTF-8", "-nopgbrk", "{}", "-"])
IMAGE = ("tesseract", "tesseract-ocr", ["{}", "stdout"])
TOOLS = {  # by ending: program, Debian's package, arguments
    **dict.fromkeys((*PAGES, ".docx", ".odt", ".epub"), PANDOC), ".pdf": PDF,
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"), IMAGE)}


def decoded(content):
    """The text of these bytes. ScriptError: they are not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScriptError(f"no UTF-8 at byte {error.start}; convert a text with iconv -f ENCODING -t UTF-8") from None


def extracted(path):
    """(text of a file, name of the program that extracted it, with its last warning, or "utf-8"). ScriptError:
    there is none; the message is the reason."""
    content, how = path.read_bytes(), "utf-8"
    if path.suffix.lower() in PAGES:
        decoded(content)  # pandoc takes what is no UTF-8 for Latin-1, whatever the page declares
    if tool := TOOLS.get(path.suffix.lower()):
        how, package, arguments = tool
        if not shutil.which(how):
            raise ScriptError(f"needs {how}: apt-get install {package}")
        name = os.path.abspath(path)  # begins with no dash, as an option does
        command = [how, *(name if word == "{}" else word for word in arguments)]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        *_, last = process.stderr.decode("utf-8", "replace").strip().split("\n")
        if process.returncode != 0:
            raise ScriptError(f"{how}: {last or 'failed'}")
        content, how = process.stdout, f"{how}: {last}" if last else how
    text = decoded(content).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text or not text.strip():
        raise ScriptError("not text: it has NUL bytes" if "\0" in text else "no text in it")
    return text if text.endswith("\n") else text + "\n", how


def found_files(path):
    """The path itself or, of a folder, all files below it in natural order, and folders that cannot be read. Left out
    are hidden files and what may have no end: pipes, devices, links to folders."""
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, files in os.walk(path, onerror=lambda error: found.append(Path(error.filename))):
        entries = [Path(folder, name) for name in files if not name.startswith(".")]
        found += [entry for entry in entries if os.path.isfile(entry) or not os.path.exists(entry)]
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found, key=natural_order)


def run():
    """Reads the command line and writes the text; prints a table of the files with their characters or why they were
    refused."""
    parser = Parser("corpus", __doc__, epilog=EXAMPLES)
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="file, or folder with all that is below it")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, type=Path, help="the text to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a text that is there")
    args = parser.parse_args()
    parts, refused = [], []
    sources = {path: found_files(path) for path in args.paths}
    require_output(args.output, [file for files in sources.values() for file in files], args.overwrite)
    for path, files in sources.items():
        for file in files:
            try:
                text, how = extracted(file)
                parts.append(text)
                print(f"{len(text):>12,}  {printable(file)}  {printable(how)}")
            except (ScriptError, OSError) as error:
                refused += [path] if file == path else []
                print(f"{'refused':>12}  {printable(file)}  {printable(getattr(error, 'strerror', None) or error)}")
    if not parts:
        raise ScriptError("nothing taken; name files or folders with text", 1)
    corpus = "".join(parts)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.output, corpus)
    print(f"wrote {printable(args.output)}: {len(corpus):,} characters, {len(set(corpus))} different")
    if refused:
        raise ScriptError(f"refused of the paths named: {', '.join(map(printable, refused))}; the text lacks them", 1)


if __name__ == "__main__":
    main(run, "corpus")
