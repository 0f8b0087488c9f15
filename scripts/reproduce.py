#!/usr/bin/env python3
"""Runs the experiments of configs/papers and holds their numbers against what the papers and laws let expect.

Each claim is a line: what was measured, the range expected, ok or MISSED. Exit code 1 if one is missed that held where the
page was written. The page OUT/README.md has every table and picture. Stopped and given again, it goes on.
"""

import argparse
import math
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib import runs
from lib.papers import EXPERIMENTS
from lib.papers_pictures import save
from lib.papers_run import ROOT
from lib.papers_tables import markdown
from lib.progress import clock

PAGE = ROOT / "configs" / "papers" / "README.md"


def verdict(claim, value):
    return "ok" if claim.low <= value <= claim.high else "MISSED"


def block(experiment, found, values, judged=True):
    """What stands on the page between an experiment's two marks: table, picture and claims."""
    parts = [experiment.table(found)] if experiment.table else []
    if experiment.draw:
        parts.append(f"![{experiment.name}](pictures/{experiment.name}.png)\n")
    parts.append(markdown(["claim", "measured", "expected", ""],
                          *([claim.text.replace("|", "\\|"), f"{value:.3g}", f"{claim.low:g} to {claim.high:g}",
                             verdict(claim, value) if judged else "not judged"] for claim, value in zip(experiment.claims, values))))
    return "\n".join(parts)


def fill(page, blocks):
    """The page with each {name: text} between its marks `<!-- results:NAME -->` and `<!-- /results:NAME -->`."""
    for name, text in blocks.items():
        marks = re.compile(rf"(<!-- results:{name} -->\n).*?(<!-- /results:{name} -->)", re.DOTALL)
        page, count = marks.subn(lambda found, text=text: found[1] + text + found[2], page)
        if count != 1:
            sys.exit(f"[reproduce] {PAGE}: {count} places for the results of {name!r}; expected one pair of marks "
                     f"<!-- results:{name} --> and <!-- /results:{name} -->")
    return page


def reproduce(experiment, args, pictures):
    """Runs, draws and judges one experiment; its block of the page and how many claims are missed that are known to hold."""
    started = time.monotonic()
    print(experiment.name, flush=True)
    found = experiment.run(ROOT / "configs" / "papers" / f"{experiment.name}.json", args.out.absolute() / experiment.name,
                           args.quick)
    if experiment.draw:
        save(experiment.draw(found), pictures / f"{experiment.name}.png")
    values = [claim.measure(found) for claim in experiment.claims]
    missed = 0
    for claim, value in zip(experiment.claims, values):
        if args.quick:
            said, expected = "", ""
            missed += not math.isfinite(value)
        else:
            said, expected = verdict(claim, value), f"   expected {claim.low:g} to {claim.high:g}"
            missed += said == "MISSED" and claim.holds
        print(f"  {said:6} {claim.text:72} {value:8.3g}{expected}")
    print(f"  {clock(time.monotonic() - started)}", flush=True)
    return block(experiment, found, values, not args.quick), missed


def main():
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"what to run (default: all): {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="tiny models and a few steps: see that all of it works; claims are "
                        "measured, not judged")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the runs (default: runs/papers, runs/papers-quick)")
    parser.add_argument("--write-page", action="store_true", help=f"put tables and pictures into {PAGE.relative_to(ROOT)} too")
    args = parser.parse_args()
    for name in set(args.names) - set(names):
        parser.error(f"no experiment {name!r}; there are {', '.join(names)}")
    if args.quick and args.write_page:
        parser.error("--write-page with --quick: the numbers of a quick run mean nothing")
    args.out = args.out or Path("runs", "papers-quick" if args.quick else "papers")
    started = time.monotonic()
    page = PAGE if args.write_page else args.out / PAGE.name
    (page.parent / "pictures").mkdir(parents=True, exist_ok=True)
    blocks, missed = {}, 0
    for experiment in EXPERIMENTS:
        if not args.names or experiment.name in args.names:
            blocks[experiment.name], more = reproduce(experiment, args, page.parent / "pictures")
            missed += more
    page.write_text(fill(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(f"{clock(time.monotonic() - started)} in all; tables and pictures in {page}")
    if missed:
        sys.exit(f"[reproduce] {missed} of the claims {'is' if missed == 1 else 'are'} "
                 f"{'not finite' if args.quick else 'missed'}")


if __name__ == "__main__":
    runs.main(main, "reproduce")
