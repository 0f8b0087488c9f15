"""The command line around a plot: which runs, where the picture goes, how it is written."""

import argparse
import io
import os
from pathlib import Path

from lib.figures import DPI, PAPERS, look, styled
from lib.runs import PlotError, find_runs, group_runs, newest_family, printable

ENDINGS = (".png", ".svg", ".pdf")
BASE_HELP = "the run, by label or folder, that others are set against (default: the first)"


def command(doc, examples, needed, default, plot, options=()):
    """A plotting script: reads the command line, finds the runs and writes the figure `plot(groups, **options)`.
    `needed`: the file that a run must have; `default`: the picture's name; `options`: (flag, argparse's settings)."""
    parser = argparse.ArgumentParser(description=doc, epilog=examples,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run, probe or sweep folder (default: the newest run "
                        "below runs/ and those that differ from it only in placement, norm or seed)")
    parser.add_argument("-o", "--output", metavar="FILE", help=f"PNG, SVG or PDF to write (default: {default} and an SVG "
                        "beside the first run; a folder, or a name without ending: both there)")
    parser.add_argument("--base", metavar="NAME", help=BASE_HELP)
    parser.add_argument("--paper", metavar="WIDTH", choices=[*PAPERS, *map(str, PAPERS.values())],
                        help="for a paper: 3.25 (column) or 5.5 (page) inches wide, letters of 8 points, no title; a PDF with "
                        "TrueType fonts (default: beside the PNG)")
    for flag, settings in options:
        parser.add_argument(flag, **settings)
    given = vars(parser.parse_args())
    folders, output, base, paper = (given.pop(name) for name in ("runs", "output", "base", "paper"))
    runs = find_runs(folders, needed) if folders else newest_family(needed)
    paper = paper and float(PAPERS.get(paper, paper))
    paths = output_paths(output, runs, default, ENDINGS, (".pdf", ".png") if paper else (".png", ".svg"))
    save(plot(styled(group_runs(runs, base)), paper=paper, **given), paths)


def loader(needed, plot):
    """The function by which a notebook gets the figure of some runs: load(RUN..., base=NAME, paper=INCHES, **options)."""
    def load(*folders, base=None, **options):
        figure = plot(styled(group_runs(find_runs(folders, needed), base)), **options)
        with look(figure.paper):
            figure.canvas.draw()  # ticks are made when first drawn: in this look
        return figure
    return load


def output_paths(given, runs, default, endings, unasked=None):
    """The files to write: the one that -o names; without an ending, in a folder, or without -o one with each ending of
    `unasked`. `default` is their name in a folder, that of the first run where none is named."""
    path = Path(os.path.normpath(os.path.relpath(runs[0].home.parent)) if given is None else given)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise PlotError(f"-o {printable(given)}: is no file or folder; give a name ending in " + " or ".join(endings))
    if path.is_dir() or str(given).endswith(os.sep):
        path = path / Path(default).stem
    elif path.suffix.lower() in endings:
        return [path]
    elif path.suffix:
        raise PlotError(f"-o {printable(given)}: got the ending {printable(path.suffix)}; give a name ending in "
                        + " or ".join(endings))
    return [path.with_suffix(ending) for ending in unasked or endings]


def file_bytes(figure, kind):
    """The figure as a file of this kind (png, svg, pdf), the same bytes every time."""
    file = io.BytesIO()
    named = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None, "Producer": None}}
    with look(figure.paper):
        figure.savefig(file, format=kind, dpi=300 if figure.paper else DPI, metadata=named[kind])
    return file.getvalue()


def save(figure, paths):
    """Writes the figure in the kinds of the paths' endings, and says where."""
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.write_bytes(file_bytes(figure, path.suffix.lower()[1:]))
    print("wrote " + " and ".join(map(printable, [paths[0], *(path.name for path in paths[1:])])))
