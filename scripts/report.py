#!/usr/bin/env python3
"""Writes one HTML page about one or more runs: how their layers change, the results, the pictures that their logs give
(all kinds of plot.py but measure), samples and configs. The page is a single file and loads nothing."""

import functools
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, ScriptError, main, printable
from lib.base.files import write_atomically
from lib.compare.comparison import comparison
from lib.compare.groups import shared_settings
from lib.compare.tables import parts_of
from lib.figures.kinds import KINDS
from lib.figures.layout import styled
from lib.figures.output import file_bytes, output_path
from lib.logs.runs import RUNNING, find_runs, shortened
from lib.page.report_data import page_data
from lib.page.report_page import bullets, folded, notes, page, picture, pre, section, swatch, table, text

EXAMPLES = """examples:
  scripts/report.py runs/quickstart/pre runs/quickstart/post
  scripts/report.py runs/sweep -o sweep.html
  scripts/report.py --watch runs/sweep                     while it trains
"""
LONGEST_SAMPLE = 3000  # characters


def heading(group):
    """The group's line and label, with which a row of a table begins."""
    return swatch(group) + text(group.label)


# ---- sections -------------------------------------------------------------------------------------------------


def results(compared):
    """The section of results: the tables and the remarks of compare.py. `compared`: as comparison() returns it."""
    introduction = (
        "A lower loss is better (nats per character). grad first/last is the norm of block 1's gradient over that of "
        "the last block's: if it is far below 1, the first blocks hardly learn. growth is the stream's rms after the "
        "last block over that after the first.")
    first, *others = parts_of(compared)
    differences = [f"<h3>{text(part.heading.rstrip(':'))}</h3>" + table(part.rows) for part in others]
    return section("Results", introduction, table(first.rows, [heading(entry["group"]) for entry in compared["runs"]]),
                   *(f'<p class="soft">{text(line)}</p>' for line in first.lines), *differences,
                   bullets(remark["text"] for remark in compared["remarks"]))


def drawn(title, caption, groups, read, plot):
    """A folded still picture, by `plot(groups)`, of the runs for which `read(run)` raises no error, with notes of the
    other runs and their reasons."""
    reasons, kept = {}, []
    for group in groups:
        good = []
        for run in group.runs:
            try:
                read(run)
                good.append(run)
            except ScriptError as error:  # a damaged log or weights file costs a picture alone
                reasons.setdefault(str(error).removeprefix(f"{run}: "), []).append(str(run))
        if good:
            kept.append(group.restricted_to(good))
    left_out = [f"Left out: {', '.join(runs)}: {reason}" for reason, runs in reasons.items()]
    names = ", ".join(group.legend() for group in kept)
    try:
        image = picture(file_bytes(plot(kept), "svg"), f"{title}: {names}", caption) if kept else ""
    except ScriptError as error:
        image = notes([f"Not drawn: {error}"])
    return folded(text(title), image + notes(left_out))


def pictures(groups):
    """The section of still pictures, which a browser without scripts shows too."""
    stills = [drawn(title, caption, groups, kind.read, functools.partial(kind.plot, **options))
              for kind in KINDS.values() if kind.suits(groups) for title, caption, options in kind.stills]
    return section("Pictures", "The pictures of scripts/plot.py, each with a line on what to look for. To see why a "
                   "placement does not learn, look at its loss, then at the cosine between tokens, then at the "
                   "gradient by layer.",
                   *stills)


def samples(groups):
    """The section of samples: for each group, the text of its first run that has one."""
    folds, missing = [], []
    for group in groups:
        sampled = [run for run in group.runs if (run.folder / "sample.txt").is_file()]
        if not sampled:
            missing.append(f"{group.label}: no sample.txt; it is written when a run is done")
            continue
        sample = (sampled[0].folder / "sample.txt").read_bytes().decode("utf-8", "replace")
        cut = sample[:LONGEST_SAMPLE] + ("…" if len(sample) > LONGEST_SAMPLE else "")
        folds.append(folded(f"{heading(group)}: <code>{text(sampled[0])}</code>", pre(cut)))
    return section("Samples", "The text that each model writes: words if it has learnt, letters in no order if it "
                   "stays at the unigram level.", *folds, notes(missing))


def files(groups):
    """The resolved config of each run, and its summary with machine and build, folded."""
    return section("Configs and machines", "To repeat a run you need its config, machine and build.", *(
        folded(f"{heading(group)}: <code>{text(run)}</code>", indented(run.config) + indented(run.summary))
        for group in groups for run in group.runs))


def indented(content):
    """A dict as preformatted JSON; nothing if it is empty."""
    return pre(json.dumps(content, indent=2, ensure_ascii=False)) if content else ""


def report(runs, refresh=None):
    """The page about these runs, which are compared with the first. `refresh`: as in report_page.page."""
    compared = comparison(runs)
    groups = styled([entry["group"] for entry in compared["runs"]])
    labels = [group.label for group in groups]
    title = "normscope: " + (" and ".join(labels) if len(labels) <= 2 else f"{len(labels)} configurations")
    count = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    return page(shortened(title, 160), f"{count} · {shared_settings(groups)}",
                [results(compared), pictures(groups), samples(groups), files(groups)],
                page_data(groups), refresh)


def watched(args, path, pause=2.0, patience=3):
    """Writes the page again whenever a run has new rows; looks every `pause` seconds, and ends after `patience` looks
    at which no run was running or had new rows."""
    earlier, quiet_looks = None, 0
    while quiet_looks < patience:
        runs = find_runs(args.runs, "config.json")
        is_training = any(run.record["status"] == RUNNING for run in runs)
        files = [file for run in runs for file in sorted(run.folder.glob("*.[cj]s*"))]  # .csv and .json
        state = [(file, file.stat().st_size) for file in files] + [is_training]
        if state != earlier:
            write(path, report(runs, refresh=5 if is_training else None))
        quiet_looks = 0 if is_training or state != earlier else quiet_looks + 1
        earlier = state
        time.sleep(pause)


def write(path, content):
    """Replaces the page at once, as a browser may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    print(f"wrote {printable(path)}", flush=True)


def run():
    """Reads the command line and writes the page."""
    parser = Parser("report", __doc__, epilog=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("-o", "--output", metavar="FILE", help="HTML file to write (default: report.html in the folder "
                        "that holds the runs)")
    parser.add_argument("--watch", action="store_true", help="write the page again as runs get rows, until all have "
                        "ended; a browser that shows it reloads it")
    args = parser.parse_args()
    runs = find_runs(args.runs, "config.json")
    path = output_path(args.output, runs, "report", (".html", ".htm"))
    watched(args, path) if args.watch else write(path, report(runs))


if __name__ == "__main__":
    main(run, "report")
