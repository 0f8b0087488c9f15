"""The kinds of pictures: a row has all that plot.py and the page need."""

import argparse
from collections import namedtuple

from lib.base.command import printable
from lib.figures import (plot_branches, plot_cosine, plot_final, plot_heads, plot_heatmap, plot_layers, plot_loss,
                         plot_measure, plot_steps, plot_updates)
from lib.logs.sites import SITES, Branches, Site, TokenCosine


def limits(text):
    """(low, high) of "LOW,HIGH"."""
    low, high = map(float, text.split(","))
    return low, high


def several(text):
    """A whole number from 2 up, since a picture needs two points."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"got {printable(text)}; expected a number of steps from 2 up")
    return int(text)


STEP = ("--step", {"type": int, "metavar": "N", "action": "append",
                   "help": "step of the panels by depth, may be repeated (default: the last logged with finite values; "
                           "cosine and measure: the first, too; layers --theory: the first)"})
YLIM = ("--ylim", {"type": limits, "metavar": "LOW,HIGH", "help": "the limits of the vertical axis"})
LAST = ("--last", {"type": several, "metavar": "N",
                   "help": "only the last N steps, where the horizontal axis is training"})
LOG = ("--log", {"action": "store_true", "help": "1 − cosine on a logarithmic axis: how the last differences go"})
THEORY = ("--theory", {"action": "store_true",
                       "help": "points: the first logged step, or --step's; dashed, whatever the step: what theory "
                               "predicts of fresh weights, for which the run's text is read"})
SITE = ("--site", {"choices": SITES, "default": "stream", "metavar": "SITE",
                   "help": f"what to draw: {', '.join(SITES)} (default: stream)"})
LOSS_X = ("--x", {"choices": plot_loss.AXES, "default": "step",
                  "help": "the horizontal axis: step (the default), tokens or seconds"})
FINAL_X = ("--x", {"metavar": "KEY", "help": "the key of the horizontal axis, such as train.lr (default: the number in "
                                             "which the runs have most values)"})
FINAL_Y = ("--y", {"metavar": "NAME", "default": plot_final.LOSS,
                   "help": "a number of summary.json, such as growth (default: final_val_loss)"})


# A kind of picture. `plot(groups, paper=None, **options)`, which drawing.drawing has decorated, returns the figure of
# groups of runs; `needed`: the file that each run must have; `options`: (flag, argparse's settings) of the command.
# `stills`, those on the page: (title, caption, options of `plot`), if it `suits(groups)`; `read(run)` raises a
# ScriptError for a run that they cannot show.
Kind = namedtuple("Kind", "plot needed help options read stills suits", defaults=[lambda groups: True])
KINDS = {
    "loss": Kind(
        plot_loss.plot, "metrics.csv",
        "training and validation loss, and those of n-gram models (training: of each seed the moving median over a "
        "twentieth of its rows, or over 3 of fewer than 100; line and band: the mean and range of the seeds that still "
        "run)",
        (LOSS_X, YLIM, LAST), plot_loss.loss_table,
        [("Loss", "Training loss as a line, validation loss as marks; dotted, the loss of models that count the "
          "training text's characters, on the validation text. A model that stays at the unigram level has learnt "
          "letter frequencies, not order.", {})]),
    "steps": Kind(
        plot_steps.plot, "metrics.csv", "the gradient's norm before clipping, and the clip factor",
        (YLIM, LAST), plot_steps.Steps,
        [("Gradient norm and clipping", "The norm of the whole gradient before clipping, and the factor by which "
          "clipping multiplies the gradient. The norm may look healthy although the first blocks get nothing, as the "
          "picture by layer shows.", {})]),
    "cosine": Kind(
        plot_cosine.plot, "layers.csv", "the cosine between the tokens of a sequence: at 1 all are alike",
        (STEP, LOG, YLIM, LAST), TokenCosine,
        [("Cosine between tokens", "How alike the vectors of a sequence's tokens are after each block. At 1 all "
          "tokens' vectors point in one direction. A norm of the sum then shrinks what is left of their differences, "
          "and with them the gradient of the next picture.", {})]),
    "layers": Kind(
        plot_layers.plot, "layers.csv", "gradients and activations of the residual stream",
        (STEP, THEORY, YLIM, LAST), Site,
        [("Gradient and activation by layer", "The residual stream after each block. A level gradient reaches the "
          "first blocks; one that falls by powers of ten does not.", {}),
         ("Before training, and by theory", "Points: the first logged step; dashed: the values that "
          "scripts/predict.py predicts for the config, whatever the seed. Placements that train very differently may "
          "still be alike here.", {"theory": True})]),
    "heatmap": Kind(
        plot_heatmap.plot, "layers.csv", "every layer at every logged step, as a map of colours", (SITE,),
        plot_heatmap.several_steps,
        [("Every layer at every step", "Steps to the right, depth upward; one colour scale holds for all runs. A "
          "gradient that darkens from below no longer reaches the first blocks.", {})]),
    "branches": Kind(
        plot_branches.plot, "layers.csv", "the size of each sublayer's output, over that of the stream",
        (STEP, YLIM, LAST), Branches,
        [("Branch over stream", "The size of each sublayer's output, as added, over that of the stream that it joins. "
          "Far below 1, the block changes little.", {})]),
    "heads": Kind(
        plot_heads.plot, "heads.csv", "entropy, sink and logits of the attention heads", (STEP, YLIM, LAST),
        plot_heads.heads,
        [("Attention heads", "The entropy of a query's weights, the weight on the first token, and the largest "
          "logits. Uniform attention weights mean that attention no longer distinguishes tokens; this happens when "
          "all token vectors of the stream have become equal.", {})]),
    "updates": Kind(
        plot_updates.plot, "params.csv", "the size of each update over that of the weights, by layer and role",
        (STEP, YLIM, LAST), plot_updates.Updates,
        [("Update over weight", "How far one step moves the weights of each layer. Near 10⁻³ is usual; far above it "
          "the learning rate is too high for that layer, far below it the layer hardly learns.", {})]),
    "measure": Kind(
        plot_measure.plot, "weights", "a measure of the weights that checkpoint.keep_every kept, by layer and by step",
        (plot_measure.METRIC, STEP, YLIM, LAST), plot_measure.Kept, []),
    "final": Kind(
        plot_final.plot, "metrics.csv",
        "the final loss, or another number of the summary, against a key in which the runs differ",
        (FINAL_X, FINAL_Y, YLIM), plot_final.final_value,
        [("Final loss against a key", "The mean of the seeds, and the range; crosses: diverged runs. The best value "
          "lies at the bottom of a curve: where that is at the edge, try further.", {})],
        plot_final.has_a_curve),
}
