#!/usr/bin/env python3
"""Draws one or more runs, a kind of picture at a time.

In a notebook each kind is a function that returns a matplotlib figure:

    import plot
    plot.layers("runs/quickstart/pre", "runs/quickstart/post", paper=5.5)
"""

import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, main
from lib.compare.groups import group_by_config
from lib.figures.kinds import KINDS
from lib.figures.layout import PAPERS, look, styled
from lib.figures.output import output_path, save
from lib.logs.runs import find_runs

EXAMPLES = """examples:
  scripts/plot.py layers runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot.py layers runs/deep_pre-probe --theory      at initialisation, with the values by theory
  scripts/plot.py heatmap runs/deep_pre --site attn_out    another site than the residual stream
  scripts/plot.py loss runs/seed-1 runs/seed-2             the mean of two seeds, and their range
  scripts/plot.py final runs/rates --x train.lr            which rate is best, for each of the other keys' values
"""


def figure(kind, *folders, **options):
    """The matplotlib figure of this kind of some run, probe or sweep folders. Options are those of the command: step=N
    or [N, ...], theory=True, log=True, site=NAME, x="tokens", ylim=(low, high), last=N; and paper=INCHES."""
    row = KINDS[kind]
    drawn = row.plot(styled(group_by_config(find_runs(folders, row.needed))), **options)
    with look(drawn.paper):
        drawn.canvas.draw()  # ticks are made when first drawn: in this look
    return drawn


def __getattr__(kind):
    """plot.layers, plot.loss, ...: figure() of each kind."""
    if kind in KINDS:
        return functools.partial(figure, kind)
    raise AttributeError(f"plot has no kind of picture called {kind}")


def arguments():
    """The options of the command line, as a dict."""
    parser = Parser("plot", __doc__, epilog=EXAMPLES)
    make_parser = functools.partial(Parser, "plot")
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True, parser_class=make_parser)
    for name, row in KINDS.items():
        kind = kinds.add_parser(name, help=row.help, description=f"Draws {row.help}, from each run's {row.needed}, "
                               "config.json and summary.json. ▲ or ▼ beside a number: the largest or smallest value of "
                               "a line that leaves the panel; a cross: a run that diverged.")
        kind.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
        kind.add_argument("-o", "--output", metavar="FILE",
                          help=f"PNG, SVG or PDF to write (default: {name}.png in the folder that holds the runs)")
        kind.add_argument("--paper", metavar="WIDTH", choices=[*PAPERS, *map(str, PAPERS.values())],
                          help="for a paper: 3.25 (column) or 5.5 (page) inches wide, letters of 8 points, no title; a "
                          "PDF with TrueType fonts unless -o names another file")
        for flag, settings in row.options:
            kind.add_argument(flag, **settings)
    return vars(parser.parse_args())


def run():
    """Reads the command line and writes the picture."""
    given = arguments()
    kind, folders, output, paper = (given.pop(name) for name in ("kind", "runs", "output", "paper"))
    row, paper = KINDS[kind], paper and float(PAPERS.get(paper, paper))
    runs = find_runs(folders, row.needed)
    path = output_path(output, runs, kind, (".pdf", ".png", ".svg") if paper else (".png", ".svg", ".pdf"))
    save(row.plot(styled(group_by_config(runs)), paper=paper, **given), path)


if __name__ == "__main__":
    main(run, "plot")
