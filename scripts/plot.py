#!/usr/bin/env python3
"""Draws one or more runs, a kind of picture at a time.

In a notebook each kind is a function that returns a matplotlib figure:

    import plot
    plot.layers("runs/quickstart/pre", "runs/quickstart/post", paper=5.5)
"""

import functools
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, main
from lib.compare.groups import group_by_config
from lib.figures import (plot_branches, plot_cosine, plot_final, plot_heads, plot_heatmap, plot_layers, plot_loss,
                         plot_steps)
from lib.figures.layout import PAPERS, look, styled
from lib.figures.output import output_path, save
from lib.logs.runs import find_runs
from lib.logs.sites import SITES

EXAMPLES = """examples:
  scripts/plot.py layers runs/quickstart/pre runs/quickstart/post -o layers.png
  scripts/plot.py layers runs/deep_pre-probe --theory      at initialisation, with the values by theory
  scripts/plot.py heatmap runs/deep_pre --site attn_out    another site than the residual stream
  scripts/plot.py loss runs/seed-1 runs/seed-2             the mean of two seeds, and their range
  scripts/plot.py final runs/rates --x train.lr            which rate is best, for each of the other keys' values
"""


def numbers(text):
    """The whole numbers of a list such as "1,3"."""
    return [int(part) for part in text.split(",")]


STEP = ("--step", {"type": int, "metavar": "N", "action": "append",
                   "help": "step of the panels by depth, may be repeated (default: the last logged with finite values; "
                           "cosine: the first, too)"})
PANELS = ("--panels", {"type": numbers, "metavar": "N,...",
                       "help": "draw only these panels, counted from 1 in the order of reading"})
LOG = ("--log", {"action": "store_true", "help": "1 − cosine on a logarithmic axis: how the last differences go"})
THEORY = ("--theory", {"action": "store_true", "help": "points: the first logged step, or --step's; dashed, whatever the "
                                                    "step: what theory predicts of fresh weights, for which the run's "
                                                    "text is read"})
SITE = ("--site", {"choices": SITES, "default": "stream", "metavar": "SITE",
                   "help": f"what to draw: {', '.join(SITES)} (default: stream)"})
LOSS_X = ("--x", {"choices": plot_loss.AXES, "default": "step",
                  "help": "the horizontal axis: step (the default), tokens or seconds"})
FINAL_X = ("--x", {"metavar": "KEY", "help": "the key of the horizontal axis, such as train.lr (default: the number in "
                                              "which the runs have most values)"})

# A kind of picture: `plot(groups, paper=None, **options)`, which drawing.drawing has decorated, returns the figure of
# groups of runs; `needed`: the file that each run must have; `options`: (flag, argparse's settings) of the command.
Kind = namedtuple("Kind", "plot needed help options")
KINDS = {
    "layers": Kind(plot_layers.plot, "layers.csv", "gradients and activations of the residual stream",
                   (STEP, THEORY, PANELS)),
    "steps": Kind(plot_steps.plot, "metrics.csv", "the gradient's norm before clipping, and the clip factor",
                  (PANELS,)),
    "heatmap": Kind(plot_heatmap.plot, "layers.csv", "every layer at every logged step, as a map of colours", (SITE,)),
    "branches": Kind(plot_branches.plot, "layers.csv", "the size of each sublayer's output, over that of the stream",
                     (STEP, PANELS)),
    "heads": Kind(plot_heads.plot, "heads.csv", "entropy, sink and logits of the attention heads", (STEP, PANELS)),
    "cosine": Kind(plot_cosine.plot, "layers.csv", "the cosine between the tokens of a sequence: at 1 all are alike",
                   (STEP, LOG, PANELS)),
    "loss": Kind(plot_loss.plot, "metrics.csv", "training and validation loss, and those of n-gram models (training: a "
                 "moving median over a twentieth of the rows of the seeds' mean; band: the seeds' range, row by row)",
                 (LOSS_X,)),
    "final": Kind(plot_final.plot, "metrics.csv", "the final loss against a key in which the runs differ", (FINAL_X,)),
}


def figure(kind, *folders, **options):
    """The matplotlib figure of this kind of some run, probe or sweep folders. Options are those of the command: step=N
    or [N, ...], panels=[N, ...], theory=True, log=True, site=NAME, x="tokens"; and paper=INCHES."""
    row = KINDS[kind]
    drawn = row.plot(styled(group_by_config(find_runs(folders, row.needed))), **options)
    with look(drawn.paper):
        drawn.canvas.draw()  # ticks are made when first drawn: in this look
    return drawn


layers, steps, heatmap, branches, heads, cosine, loss, final = (functools.partial(figure, kind) for kind in KINDS)


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
