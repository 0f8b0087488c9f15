#!/usr/bin/env python3
"""Runs the experiments of configs/papers and compares their numbers with the values expected from papers and laws.

Each claim is a line: measured value, expected range, ok or MISSED. Exit code 1 if a claim is missed that must hold.
The results are written to OUT/results/NAME.json, and from that file the tables and pictures to OUT/README.md; with
--write-page to configs/papers/results and to the page itself. --redraw runs nothing and takes the results that are in
configs/papers/results.

Started again, it uses what is in OUT. A run that is done is used whatever its age. A change of its config that
makes another run is an error; only more train.steps are allowed, and trained. A probe is used if its config and number
of seeds are the same and it is newer than the program; a measure if it is newer than the run, the program and the file
that defines it. --quick has the same rules and, by default, an OUT of its own. Delete the folder OUT/NAME to repeat an
experiment.
"""

import math
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib import papers_run, runs
from lib.command import ROOT, Parser
from lib.papers import PAGE, config_of, experiment, names_of_experiments
from lib.papers_pictures import save
from lib.papers_results import file_of, load, of_data, rounded, text_of
from lib.papers_tables import markdown
from lib.progress import clock


def block(name, module, results, judged=True):
    """The text of the page between an experiment's two marks: table, picture and claims."""
    pieces = [module.table(results)] if hasattr(module, "table") else []
    if hasattr(module, "picture"):
        pieces.append(f"![{name}](pictures/{name}.png)\n")
    lines = [[claim.text.replace("|", "\\|"), f"{claim.value:.3g}", f"{claim.low:g} to {claim.high:g}",
              claim.verdict if judged else "not judged"] for claim in module.claims(results)]
    return "\n".join([*pieces, markdown(["claim", "measured", "expected", ""], *lines)])


def fill(page, blocks):
    """The page with each {name: text} between its marks `<!-- results:NAME -->` and `<!-- /results:NAME -->`."""
    for name, text in blocks.items():
        marks = re.compile(rf"(<!-- results:{name} -->\n).*?(<!-- /results:{name} -->)", re.DOTALL)
        page = marks.sub(lambda match, text=text: match[1] + text + match[2], page)
    return page


def results_of(name, module, args, folder):
    """The results of an experiment: with --redraw the kept ones, else those of its runs, as they are written to the
    folder."""
    if args.redraw:
        return load(name)
    results = papers_run.run(module, config_of(name), args.out.absolute() / name, args.quick)
    data = rounded(results, lambda results: block(name, module, results))
    file_of(name, folder).write_text(text_of(data), encoding="utf-8")
    return of_data(data)


def reproduce(name, args, page):
    """Runs, draws and judges an experiment. Returns its block of the page, and the number of claims that failed: that
    are missed but hold on the page or, in a quick run, are not finite."""
    started = time.monotonic()
    print(name, flush=True)
    module = experiment(name)
    results = results_of(name, module, args, page.parent / "results")
    if hasattr(module, "picture"):
        save(module.picture(results), page.parent / "pictures" / f"{name}.png")
    claims = list(module.claims(results))
    for claim in claims:
        judged = "" if args.quick else f"   expected {claim.low:g} to {claim.high:g}"
        print(f"  {'' if args.quick else claim.verdict:6} {claim.text:72} {claim.value:8.3g}{judged}")
    print(f"  {clock(time.monotonic() - started)}", flush=True)
    if args.quick:
        failed = [claim for claim in claims if not math.isfinite(claim.value)]
    else:
        failed = [claim for claim in claims if claim.must_hold and claim.verdict == "MISSED"]
    return block(name, module, results, not args.quick), len(failed)


def main():
    """Reads the command line, runs the experiments and writes the page."""
    names = names_of_experiments()
    parser = Parser("reproduce", __doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"an experiment (default: all): {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="tiny models and a few steps, to see that everything "
                        "works; claims are measured, not judged")
    parser.add_argument("--out", metavar="DIR", type=Path,
                        help="folder of the runs (default: runs/papers; with --quick runs/papers-quick)")
    parser.add_argument("--write-page", action="store_true",
                        help=f"write tables and pictures to {PAGE.relative_to(ROOT)}")
    parser.add_argument("--redraw", action="store_true", help="only draw and judge the kept results again")
    args = parser.parse_args()
    for name in set(args.names) - set(names):
        parser.error(f"no experiment {name!r}; there are {', '.join(names)}")
    if args.quick and (args.write_page or args.redraw):
        parser.error("--write-page or --redraw with --quick: the numbers of a quick run mean nothing")
    if args.redraw:
        kept = [name for name in names if file_of(name).exists()]
        for name in set(args.names) - set(kept):
            parser.error(f"--redraw: {name} has no {file_of(name).relative_to(ROOT)}; leave --redraw out to run it")
        names = kept
    args.out = args.out or Path("runs", "papers-quick" if args.quick else "papers")
    started = time.monotonic()
    page = PAGE if args.write_page else args.out / PAGE.name
    for folder in ("pictures", "results"):
        (page.parent / folder).mkdir(parents=True, exist_ok=True)
    blocks, failed = {}, 0
    for name in [name for name in names if name in args.names or not args.names]:
        blocks[name], count = reproduce(name, args, page)
        failed += count
    page.write_text(fill(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(f"{clock(time.monotonic() - started)} in all; tables and pictures in {page}")
    if failed:
        fault = "not finite" if args.quick else "missed"
        sys.exit(f"[reproduce] {failed} of the claims {'is' if failed == 1 else 'are'} {fault}")


if __name__ == "__main__":
    runs.main(main, "reproduce")
