#!/usr/bin/env python3
"""Makes one UTF-8 text, which normscope trains on, of files and folders: texts, source code and Markdown as they are; HTML, DOCX,
ODT and EPUB by pandoc, PDF by pdftotext, images by tesseract. Line ends become \\n; all else stays unless asked."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

from lib.runs import printable

EXAMPLES = """examples:
  scripts/make_corpus.py src README.md -o runs/self.txt           this project's own source
  scripts/make_corpus.py thesis.pdf notes/ -o thesis.txt --join-hyphens --drop-furniture --max-vocab 100
  build/normscope train configs/quickstart.json --set data.path=thesis.txt --out runs/thesis
"""
PANDOC = ("pandoc", "pandoc", ["--to=plain", "--wrap=none", "--sandbox", "{}"])
PDF = ("pdftotext", "poppler-utils", ["-enc", "UTF-8", "{}", "-"])
IMAGE = ("tesseract", "tesseract-ocr", ["{}", "stdout"])
TOOLS = {  # by ending: program, Debian's package, arguments
    **dict.fromkeys((".html", ".htm", ".xhtml", ".docx", ".odt", ".epub"), PANDOC), ".pdf": PDF,
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"), IMAGE)}
BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"))


class Refused(Exception):
    """Why nothing of a file is taken."""


def decoded(content):
    """(text, encoding) of a file's bytes: what a byte order mark says, else UTF-8, else Windows-1252 where nothing speaks
    against text."""
    for mark, encoding in BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace"), encoding.removesuffix("-sig")
    if re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]", content):
        raise Refused("not text: it has control bytes")
    try:
        return content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), "windows-1252"


def extracted(path):
    """(text, by what) of a file."""
    tool = TOOLS.get(path.suffix.lower())
    if tool is None:
        return decoded(path.read_bytes())
    program, package, arguments = tool
    if not shutil.which(program):
        raise Refused(f"needs {program}: apt-get install {package}")
    name = os.path.abspath(path)  # which is no option's
    done = subprocess.run([program, *(name if a == "{}" else a for a in arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    if done.returncode != 0:
        raise Refused(f"{program}: {(done.stderr.decode('utf-8', 'replace').strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.decode("utf-8", "replace"), program


def found_files(paths, output):
    """The files named, and those below folders, in order; hidden ones and the output itself left out."""
    for path in paths:
        for file in files_below(path) if path.is_dir() else [path]:
            if file.resolve() != output.resolve():
                yield file


def files_below(folder):
    """The files in a folder, at any depth, in order: no hidden ones, and no pipes, which would wait for a writer."""
    return sorted(p for p in folder.rglob("*") if (p.is_file() or not p.exists())
                  and not any(part.startswith(".") for part in p.relative_to(folder).parts))


def without_furniture(text):
    """The text without the first and last lines of pages that, digits aside, most pages have: headers and page numbers."""
    pages = [page.strip("\n").split("\n") for page in text.split("\f")]

    def shape(line):
        return re.sub(r"\d+", "0", line.strip())

    counts = Counter(shape(page[at]) for page in pages for at in {0, len(page) - 1} - ({0} if len(page) < 2 else set()))
    common = {line for line, count in counts.items() if line and count > len(pages) / 2 and count > 2}
    kept = []
    for page in pages:
        first, last = shape(page[0]) in common, len(page) > 1 and shape(page[-1]) in common
        kept.append("\n".join(page[first:len(page) - last]))
    return "\n".join(kept)


def cleaned(text, args):
    """A file's text as it joins the others."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").removeprefix("\ufeff")
    if args.drop_furniture:
        text = without_furniture(text)
    text = text.replace("\f", "\n")
    if args.join_hyphens:
        text = re.sub(r"(?<=\w)[-\u00ad]\n(?=[a-z\u00df-\u00ff])", "", text)
    return text if text.endswith("\n") or not text else text + "\n"


def folded(text, most):
    """(text, {character: replacement}) with at most this many characters: of rare ones the letter under the accent, else ?."""
    counts = Counter(text)
    if len(counts) <= most:
        return text, {}
    kept = {character for character, _ in counts.most_common(most - 1)} | {"?"}
    changes = {}
    for character in counts.keys() - kept:
        plain = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
        changes[character] = plain if plain and set(plain) <= kept else "?"
    return text.translate(str.maketrans(changes)), dict(sorted(changes.items()))


def run():
    """Reads the command line and writes the text; a table tells what became of each file."""
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="file, or folder with all that is below it")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, type=Path, help="the text to write")
    parser.add_argument("--max-vocab", metavar="N", type=int, help="fold rare characters until N remain")
    parser.add_argument("--join-hyphens", action="store_true", help="join words that a hyphen splits at a line's end")
    parser.add_argument("--drop-furniture", action="store_true", help="drop headers and page numbers that most pages repeat")
    args = parser.parse_args()
    if args.max_vocab is not None and args.max_vocab < 2:
        parser.error(f"argument --max-vocab: got {args.max_vocab}; give 2 or more")
    output = args.output.resolve() if args.output.is_symlink() else args.output  # a link stays a link
    if output.exists() and not output.is_file():
        parser.error(f"argument -o: {printable(args.output)} is there and is no file")
    parts = []
    for file in found_files(args.paths, output):
        try:
            text, how = extracted(file)
            text = cleaned(text, args)
            if not text.strip():
                raise Refused("no text in it")
            parts.append(text)
            print(f"{len(text):>12,}  {printable(file)}  {how}")
        except (Refused, OSError) as error:
            print(f"{'refused':>12}  {printable(file)}  {printable(getattr(error, 'strerror', None) or error)}")
    if not parts:
        sys.exit("[corpus] nothing taken; name files or folders with text")
    corpus, changes = folded("".join(parts), args.max_vocab or 0x110000)
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(output.name + ".new")
    new.write_text(corpus, encoding="utf-8", newline="")
    new.replace(output)
    for character, plain in changes.items():
        print(f"folded {printable(character)} (U+{ord(character):04X}) to {plain}")
    print(f"wrote {printable(args.output)}: {len(corpus):,} characters, {len(set(corpus))} different")


if __name__ == "__main__":
    try:
        run()
    except OSError as error:
        sys.exit(f"[corpus] {printable(error.filename or 'output')}: {error.strerror or error}")
