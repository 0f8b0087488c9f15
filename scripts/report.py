#!/usr/bin/env python3
"""Writes one HTML page about one or more runs: what was compared, the results, every picture, samples and configs. The
page needs nothing but itself."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib import plot_branches, plot_heads, plot_heatmap, plot_layers, plot_loss, plot_steps
from lib.command import Parser
from lib.figures import styled
from lib.files import write_atomically
from lib.output import file_bytes, output_path
from lib.report_data import page_data
from lib.report_page import bullets, folded, key, notes, page, picture, pre, section, table, text
from lib.comparison import comparison
from lib.groups import shared_settings
from lib.runs import UNFINISHED, PlotError, find_runs, main, printable, shortened
from lib.sites import Branches, Site

EXAMPLES = """examples:
  scripts/report.py runs/quickstart/pre runs/quickstart/post
  scripts/report.py runs/sweep -o sweep.html
  scripts/report.py --watch runs/sweep                     while it trains
"""
LONGEST_SAMPLE = 3000  # characters


def heading(group):
    """The group's colour and label, as a table's row begins."""
    return key(group) + text(group.label)


# ---- sections -------------------------------------------------------------------------------------------------


def compared(said):
    """What was compared: the runs, and the keys that tell them apart."""
    entries = said["runs"]
    keys = list(dict.fromkeys(k for entry in entries for k in entry["keys"]))
    rows = [[heading(entry["group"]),
             *(f"<code>{text(shortened(json.dumps(entry['keys'][k]), 120)) if k in entry['keys'] else '–'}</code>"
               for k in keys),
             text(", ".join(map(str, entry["seeds"]))), folders_of(entry["group"])] for entry in entries]
    sentences = bullets(r["text"] for r in said["remarks"] if r["kind"] == "differs")
    return section("What was compared" if len(entries) > 1 else "The run",
                   table(["run", *(f"<code>{text(k)}</code>" for k in keys), "seed", "folder"], rows), sentences)


def folders_of(group):
    """Where a group's runs are; of several, folded."""
    folders = "<br>".join(f"<code>{text(run)}</code>" for run in group.runs)
    return folders if len(group.runs) == 1 else folded(f"{len(group.runs)} folders", folders)


def results(said):
    """The table of results, the differences seed by seed, and what can be said of them: all as compare.py has it."""
    rows = []
    for entry in said["runs"]:
        figures = [figure["text"] for figure in entry["figures"].values()]
        rows.append([heading(entry["group"]), text(entry["status"]), f"{entry['params']:,}" if entry["params"] else "–",
                     *(text(f).replace(" ± ", ' <span class="spread">± ') + "</span>" * (" ± " in f) for f in figures)])
    header = ["run", "status", "params", *(figure["title"] for figure in said["runs"][0]["figures"].values())]
    pairs = [[text(pair[key]) for key in ("group", "base", "difference", "text")] for pair in said["paired"]]
    return section("Results", "<p>Losses in nats per character. Grad first/last: gradient norm of block 1's parameters "
                   "over that of the last block's; growth: rms of the stream after the last block over that before the "
                   "first. ± is the standard error of the mean over seeds.</p>",
                   table(header, rows, numbers=range(2, len(header))),
                   "<h3>Seed by seed</h3>\n<p>Final validation loss of a run minus that of another.</p>"
                   + table(["run", "minus", "difference", ""], pairs, numbers=[2]) if pairs else "",
                   bullets(r["text"] for r in said["remarks"] if r["kind"] != "differs"))


def drawn(title, caption, groups, read, plot):
    """A still picture of the runs that `read` takes; it says which are left out, and why."""
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
            kept.append(group.of(good))
    left_out = [f"Left out: {', '.join(runs)}: {reason}" for reason, runs in reasons.items()]
    if not kept:
        return folded(text(title), "<p>No run has what this picture shows.</p>" + notes(left_out), still=True)
    try:
        figure = plot(kept)
    except PlotError as error:
        return folded(text(title), notes([f"Not drawn: {error}", *left_out]), still=True)
    names = ", ".join(group.legend() for group in kept)
    return folded(text(title), picture(file_bytes(figure, "svg"), f"{title}: {names}", caption) + notes(left_out), still=True)


def pictures(groups):
    """The still pictures: all that a browser without scripts shows, and what a paper takes."""

    def losses(run):
        if run.probe:
            raise PlotError(f"{run}: a probe does not train")
        run.rows("metrics.csv", ("step", "train_loss", "val_loss"), "not a training run")

    def several_steps(run):
        if Site(run).steps.size < 2:
            raise PlotError(f"{run}: one step is logged, a map needs two")

    return section("Pictures",
        drawn("Loss", "Training loss as a line, validation loss as diamonds; dotted, what counting characters achieves "
              "on the same validation text.", groups, losses, plot_loss.plot),
        drawn("Gradient norm and clipping", "Of the whole gradient, before it is clipped, and what clipping leaves of it.",
              groups, plot_steps.Steps, plot_steps.plot),
        drawn("Gradient and activation by layer", "The residual stream after each block. A level gradient reaches the "
              "first blocks; one that falls by powers of ten does not.", groups, Site, plot_layers.plot),
        drawn("Before training, beside theory", "Points: the first logged step; dashed: what `scripts/predict.py` expects of "
              "such a config, whatever the seed.", groups, Site, lambda kept: plot_layers.plot(kept, theory=True)),
        drawn("Every layer at every step", "Time to the right, depth upward. One colour scale holds for all runs.",
              groups, several_steps, plot_heatmap.plot),
        drawn("Branch beside stream", "How large what a sublayer adds is, beside the stream that it joins. Far below "
              "1, the block changes little.", groups, Branches, plot_branches.plot),
        drawn("Attention heads", "How widely a query attends, how much of it goes to the first token, how large logits "
              "are. Uniform weights tell nothing apart: so it is where all tokens of a stream have become alike.", groups,
              plot_heads.heads, plot_heads.plot))


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


def files(groups):
    """The resolved config of each run, and its summary with machine and build, folded."""
    return section("Configs and machines", *(
        folded(f"{key(group)}{text(group.label)}: <code>{text(run)}</code>",
               "".join(pre(json.dumps(part, indent=2, ensure_ascii=False)) for part in (run.config, run.summary) if part))
        for group in groups for run in group.runs))


def report(runs, refresh=None):
    """The page about these runs, set against the first."""
    said = comparison(runs)
    groups = styled([entry["group"] for entry in said["runs"]])
    labels = [group.label for group in groups]
    title = "normscope: " + (" and ".join(labels) if len(labels) <= 2 else f"{len(labels)} configurations")
    count = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    return page(shortened(title, 160), f"{count} · {shared_settings(groups)}",
                [compared(said), results(said), pictures(groups), samples(groups), files(groups)],
                page_data(groups), refresh)


def watched(args, path, pause=2.0, patience=3):
    """Writes the page anew whenever a run has new rows, until none has been unfinished or new for `patience` looks."""
    seen, calm = None, 0
    while calm < patience:
        runs = find_runs(args.runs, "config.json")
        going_on = any(run.record["status"] == UNFINISHED for run in runs)
        now = [(file, file.stat().st_size) for run in runs for file in sorted(run.folder.glob("*.[cj]s*"))] + [going_on]
        if now != seen:
            write(path, report(runs, refresh=5 if going_on else None))
        calm = 0 if going_on or now != seen else calm + 1
        seen = now
        time.sleep(pause)


def write(path, content):
    """Replaces the page at once, as a browser may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    print(f"wrote {printable(path)}", flush=True)


def run():
    """Reads the command line and writes the page."""
    parser = Parser("plot", __doc__, epilog=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("-o", "--output", metavar="FILE", help="HTML file to write (default: report.html in the folder "
                        "that holds the runs)")
    parser.add_argument("--watch", action="store_true", help="write the page anew as runs get rows, until all have ended; "
                        "a browser that shows it follows")
    args = parser.parse_args()
    runs = find_runs(args.runs, "config.json")
    path = output_path(args.output, runs, "report", (".html", ".htm"))
    try:
        watched(args, path) if args.watch else write(path, report(runs))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(run)
