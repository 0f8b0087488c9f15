#!/usr/bin/env python3
"""Writes one HTML page about one or more runs: what was compared, the results, every picture, samples and configs. The
page needs nothing but itself."""

import argparse
import json
import math
import statistics

import plot_branches
import plot_heatmap
import plot_layers
import plot_loss
from figures import colored, output_path, png_bytes, pyplot
from report_page import bullets, dot, folded, notes, page, picture, pre, section, table, text
from runs import (DERIVED, WORDING, Group, PlotError, find_runs, group_runs, main, np, printable, shared_settings,
                  shortened)
from sites import Branches, Site

EXAMPLES = """examples:
  scripts/report.py runs/quickstart/pre runs/quickstart/post
  scripts/report.py runs/sweep -o sweep.html
"""
LONGEST_SAMPLE = 3000  # characters
SMALL_BRANCH = 0.05  # of the stream: below it the place of a norm hardly matters
AT_UNIGRAM = 0.08  # nats: this near to the unigram level, only letter counts are learnt
FIGURES = (("best val", "best_val_loss"), ("final val", "final_val_loss"), ("final train", "final_train_loss"),
           ("grad first/last", "grad_first_last"), ("growth", "growth"), ("tokens/s", "tokens_per_s"))
MACHINE = ("steps", "seconds", "tokens_per_s", "threads", "precision", "gemm", "blas", "cpu", "isa", "compiler", "libc",
           "version", "peak_rss_mb", "trajectory_hash")


def of_summary(run, key):
    """A number of the run's summary; None where it is not there."""
    value = run.summary.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def mean_and_spread(group, key):
    """(mean, sample standard deviation) of a figure over the group's runs that have it; None where there is none."""
    values = [v for v in (of_summary(run, key) for run in group.runs) if v is not None]
    return (statistics.fmean(values) if values else None, statistics.stdev(values) if len(values) > 1 else None)


def figure_text(key, value):
    """A figure as it is printed: losses with four digits after the point, ratios with three significant ones."""
    if key == "tokens_per_s":
        return f"{value:,.0f}"
    if key.endswith("_loss") and abs(value) < 1000:
        return f"{value:.4f}"
    return f"{float(f'{value:.3g}'):g}"


def status(run):
    """What became of a run, in words."""
    if run.probe:
        return "probe"
    if not run.diverged:
        return str(run.summary.get("status", "unfinished"))
    culprit = run.summary.get("first_nonfinite")
    if not isinstance(culprit, dict):
        return "diverged"
    where = culprit.get("param") or f"layer {culprit.get('layer')} {culprit.get('site')}"
    return f"diverged at step {culprit.get('step')}: {'gradient of ' * (culprit.get('kind') == 'gradient')}{where}"


def heading(group):
    """The group's colour and label, as a table's row begins."""
    return dot(group.color) + text(group.label)


# ---- sections -------------------------------------------------------------------------------------------------


def compared(groups):
    """What was compared: the runs, and the keys in which their configs differ, those that follow from others last."""
    configs = [group.runs[0].keys for group in groups]
    order = [*WORDING, *sorted({key for config in configs for key in config} - {*WORDING, *DERIVED}), *DERIVED]
    differing = [k for k in order if len({config.get(k) for config in configs}) > 1]
    rows = []
    for group, config in zip(groups, configs):
        folders = "".join(f'<div class="folder"><code>{text(run)}</code></div>' for run in group.runs)
        seeds = ", ".join(str(run.seed) for run in group.runs)
        rows.append([heading(group), *(f"<code>{text(shortened(config.get(k, '–'), 120))}</code>" for k in differing),
                     text(seeds), folders])
    said = ("" if len(groups) == 1 else "These keys differ; all others that bear on the numbers are equal."
            if differing else "The configs are equal in every key that bears on the numbers.")
    return section("What was compared" if len(groups) > 1 else "The run", f"<p>{said}</p>" if said else "",
                   table(["run", *(f"<code>{text(k)}</code>" for k in differing), "seed", "folder"], rows))


def results(groups):
    """The table of results and what can be said of it; probes have no results."""
    header = ["run", "status", "params", *(name for name, _ in FIGURES)]
    rows = []
    for group in groups:
        states = [status(run) for run in group.runs]
        counted = [f"{states.count(s)} × {s}" for s in dict.fromkeys(states)] if len(set(states)) > 1 else states[:1]
        params = of_summary(group.runs[0], "params")
        row = [heading(group), "<br>".join(map(text, counted)), "–" if params is None else f"{params:,.0f}"]
        for _, key in FIGURES:
            mean, spread = mean_and_spread(group, key)
            row.append("–" if mean is None else figure_text(key, mean) if spread is None else
                       f'{figure_text(key, mean)} <span class="spread">± {figure_text(key, spread)}</span>')
        rows.append(row)
    if all(run.probe for group in groups for run in group.runs):
        return section("Results", "<p>Probes: no training, and so no losses.</p>", bullets(remarks(groups)))
    return section("Results", "<p>Losses in nats per character. Grad first/last: gradient norm of block 1's parameters "
                   "over that of the last block's; growth: rms of the stream after the last block over that before the "
                   "first. ± is the sample standard deviation over seeds.</p>",
                   table(header, rows, numbers=range(2, len(header))), bullets(remarks(groups)))


def remarks(groups):
    """What stands out, and what cannot be concluded; as `normscope compare` has it."""
    said = []
    trained = [run for group in groups for run in group.runs if not run.probe]
    unigram = plot_loss.common_levels(trained).get("unigram") if trained else None
    for group in groups:
        loss, _ = mean_and_spread(group, "final_val_loss")
        if unigram is not None and loss is not None and abs(loss - unigram) < AT_UNIGRAM:
            said.append(f"{group.label} stands at the unigram level ({unigram:.2f} nats): it has learnt how often each "
                        "character occurs and nothing of their order")
        share = first_share(group)
        if share is not None and share < SMALL_BRANCH:
            said.append(f"{group.label}: at the start a branch is {100 * share:.1f}% of the stream it is added to; so "
                        "small that the norms' place can hardly matter")
    if len(groups) > 1 and any(len(group.runs) == 1 for group in groups):
        said.append("one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out ...) "
                    "become mean ± spread here")
    return said


def first_share(group):
    """Mean of what branches add over the stream they join, at the first logged step; None where it is not known."""
    shares = []
    for run in group.runs:
        try:
            branches = Branches(run)
        except PlotError:
            continue
        first = np.concatenate([branches.attention[0, 1:], branches.ffn[0, 1:]])
        shares += first[np.isfinite(first)].tolist()
    return statistics.fmean(shares) if shares else None


def drawn(title, caption, groups, read, plot):
    """A section with a picture of the runs that `read` takes; it says which are left out, and why."""
    reasons, kept = {}, []
    for group in groups:
        good = []
        for run in group.runs:
            try:
                read(run)
                good.append(run)
            except PlotError as error:
                reasons.setdefault(str(error).removeprefix(f"{run}: "), []).append(str(run))
        if good:
            kept.append(Group(good, group.label, group.color))
    left_out = [f"Left out: {', '.join(runs)}: {reason}" for reason, runs in reasons.items()]
    if not kept:
        return section(title, "<p>No run has what this picture shows.</p>", notes(left_out))
    try:
        figure = plot(kept)
    except PlotError as error:
        return section(title, notes([f"Not drawn: {error}", *left_out]))
    png = png_bytes(figure)
    pyplot.close(figure)
    names = ", ".join(group.legend() for group in kept)
    return section(title, picture(png, f"{title}: {names}", caption), notes(left_out))


def pictures(groups):
    """The sections with pictures."""

    def losses(run):
        if run.probe:
            raise PlotError(f"{run}: a probe does not train")
        run.rows("metrics.csv", ("step", "train_loss", "val_loss"), "not a training run")

    def several_steps(run):
        if Site(run).steps.size < 2:
            raise PlotError(f"{run}: one step is logged, a map needs two")

    return [
        drawn("Loss", "Training loss as a line, validation loss as diamonds; dotted, what counting characters achieves "
              "on the same validation text.", groups, losses, plot_loss.plot),
        drawn("Gradient and activation by layer", "The residual stream after each block. A level gradient reaches the "
              "first blocks; one that falls by powers of ten does not.", groups, Site, plot_layers.plot),
        drawn("Every layer at every step", "Time to the right, depth upward. One colour scale holds for all runs.",
              groups, several_steps, plot_heatmap.plot),
        drawn("Branch beside stream", "How large what a sublayer adds is, beside the stream that it joins. Far below "
              "1, the block changes little.", groups, Branches, plot_branches.plot)]


def samples(groups):
    """What the models write: of each group, the first run that has a sample."""
    parts, missing = [], []
    for group in groups:
        for run in group.runs:
            try:
                sample = (run.folder / "sample.txt").read_bytes().decode("utf-8", "replace")
            except FileNotFoundError:
                continue
            cut = sample[:LONGEST_SAMPLE] + ("…" if len(sample) > LONGEST_SAMPLE else "")
            parts.append(f"<h3>{heading(group)}</h3>\n<p class=\"soft\"><code>{text(run)}</code></p>\n{pre(cut)}")
            break
        else:
            missing.append(f"{group.label}: no sample.txt; it is written when a run is done")
    return section("Samples", *parts, notes(missing))


def machine(groups):
    """What the runs ran on, a row each."""
    def cell(run, key):
        value = run.summary.get(key, "–")
        if isinstance(value, dict):
            value = " ".join(str(v) for v in value.values())
        return text(f"{value:.5g}" if isinstance(value, float) else value)

    runs = [(group, run) for group in groups for run in group.runs if run.summary]
    without = [f"{run}: no summary.json" + (" (a probe)" if run.probe else "; it is not finished")
               for group in groups for run in group.runs if not run.summary]
    shown = [key for key in MACHINE if any(key in run.summary for _, run in runs)]
    rows = [[f"{dot(group.color)}<code>{text(run)}</code>", *(cell(run, key) for key in shown)] for group, run in runs]
    return section("Machine and build", table(["run", *map(text, shown)], rows) if rows else "", notes(without))


def configs(groups):
    """The resolved config of each run, folded."""
    return section("Configs", *(
        folded(f"{dot(group.color)}{text(group.label)}: <code>{text(run)}</code>",
               pre(json.dumps(run.config, indent=2, ensure_ascii=False))) for group in groups for run in group.runs))


def report(runs):
    """The page about these runs."""
    groups = colored(group_runs(runs))
    labels = [group.label for group in groups]
    title = "normscope: " + (" and ".join(labels) if len(labels) <= 2 else f"{len(labels)} configurations")
    count = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    return page(shortened(title, 160), f"{count} · {shared_settings(groups)}",
                [compared(groups), results(groups), *pictures(groups), samples(groups), machine(groups),
                 configs(groups)])


def run():
    """Reads the command line and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("-o", "--output", metavar="FILE", help="HTML file to write (default: report.html beside the "
                        "first run)")
    args = parser.parse_args()
    runs = find_runs(args.runs, "config.json")
    path = output_path(args.output, runs, "report.html", (".html", ".htm"))
    content = report(runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="\n")
    print(f"wrote {printable(path)}")


if __name__ == "__main__":
    main(run)
