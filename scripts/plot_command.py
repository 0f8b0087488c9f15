"""The command line around a plot: which runs, where the picture goes, how it is written."""

import argparse
import io
import os
from pathlib import Path

from figures import DPI, pyplot, styled
from runs import PlotError, find_runs, group_runs, newest_family, printable

BASE_HELP = "the run, by label or folder, that others are set against (default: the first)"


def command(doc, examples, needed, default, plot, options=()):
    """A plotting script: reads the command line, finds the runs and writes the figure `plot(groups, **options)`.
    `needed`: the file that a run must have; `default`: the picture's name; `options`: (flag, argparse's settings)."""
    parser = argparse.ArgumentParser(description=doc, epilog=examples,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run, probe or sweep folder (default: the newest run "
                        "below runs/ and those that differ from it only in placement, norm or seed)")
    parser.add_argument("-o", "--output", metavar="FILE", help=f"PNG or SVG to write (default: {default} and an SVG "
                        "beside the first run; a folder, or a name without ending: both there)")
    parser.add_argument("--base", metavar="NAME", help=BASE_HELP)
    for flag, settings in options:
        parser.add_argument(flag, **settings)
    given = vars(parser.parse_args())
    folders, output, base = (given.pop(name) for name in ("runs", "output", "base"))
    runs = find_runs(folders, needed) if folders else newest_family(needed)
    paths = output_paths(output, runs, default)
    save(plot(styled(group_runs(runs, base)), **given), paths)


def output_paths(given, runs, default, endings=(".png", ".svg")):
    """The files to write: the one that -o names; without an ending, in a folder, or without -o one with each ending.
    `default` is their name in a folder, that of the first run where none is named."""
    path = Path(os.path.normpath(os.path.relpath(runs[0].home.parent)) if given is None else given)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise PlotError(f"-o {printable(given)}: is no file or folder; give a name ending in " + " or ".join(endings))
    if path.is_dir():
        path = path / Path(default).stem
    elif path.suffix.lower() in endings:
        return [path]
    elif path.suffix:
        raise PlotError(f"-o {printable(given)}: got the ending {printable(path.suffix)}; give a name ending in "
                        + " or ".join(endings))
    return [path.with_suffix(ending) for ending in endings]


def png_bytes(figure):
    """The figure as a PNG file's bytes, the same every time."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()


def svg_text(figure):
    """The figure as SVG, the same every time."""
    file = io.StringIO()
    figure.savefig(file, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def save(figure, paths):
    """Writes the figure as PNG or SVG, by each path's ending, the same bytes every time, and says where."""
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if path.suffix.lower() == ".png":
            path.write_bytes(png_bytes(figure))
        else:
            path.write_text(svg_text(figure), encoding="utf-8")
    pyplot.close(figure)
    print("wrote " + " and ".join(map(printable, [paths[0], *(path.name for path in paths[1:])])))
