"""The command line around a plot: which runs, where the picture goes, how it is written."""

import argparse
import io
import os
from pathlib import Path

from figures import DPI, colored, pyplot
from runs import PlotError, find_runs, group_runs, newest_family, printable


def command(doc, examples, needed, default, plot, options=()):
    """A plotting script: reads the command line, finds the runs and writes the figure `plot(groups, **options)`.
    `needed`: the file that a run must have; `default`: the picture's name; `options`: (flag, argparse's settings)."""
    parser = argparse.ArgumentParser(description=doc, epilog=examples,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run, probe or sweep folder (default: the newest run "
                        "below runs/ and those that differ from it only in placement, norm or seed)")
    parser.add_argument("-o", "--output", metavar="FILE", help=f"PNG to write, an SVG beside it (default: {default} "
                        "beside the first run)")
    for flag, settings in options:
        parser.add_argument(flag, **settings)
    given = vars(parser.parse_args())
    folders, output = given.pop("runs"), given.pop("output")
    runs = find_runs(folders, needed) if folders else newest_family(needed)
    path = output_path(output, runs, default)
    save(plot(colored(group_runs(runs)), **given), path)


def output_path(given, runs, default, endings=(".png", ".svg")):
    """Where the output goes: -o, or `default` beside the first run. It gets the first of the endings."""
    if given is None:
        return Path(os.path.normpath(os.path.relpath(runs[0].home.parent))) / default
    path = Path(given)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise PlotError(f"-o {printable(given)}: is no file or folder; give a name ending in " + " or ".join(endings))
    if path.suffix.lower() not in (*endings, ""):
        raise PlotError(f"-o {printable(given)}: got the ending {printable(path.suffix)}; give a name ending in "
                        + " or ".join(endings))
    if path.is_dir():
        path = path / default
    return path.with_suffix(endings[0])


def png_bytes(figure):
    """The figure as a PNG file's bytes, the same every time."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()


def save(figure, path):
    """Writes PNG and SVG side by side, the same bytes every time, and says where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png_bytes(figure))
    figure.savefig(path.with_suffix(".svg"), dpi=DPI, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    print(f"wrote {printable(path)} and {printable(path.with_suffix('.svg').name)}")
