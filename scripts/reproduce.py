#!/usr/bin/env python3
"""Runs the experiments of configs/papers and compares their numbers with the values expected from papers and laws.

Builds the program first, unless NORMSCOPE_BINARY names one or --redraw runs nothing. Each claim is a line: measured
value, expected range, ok or MISSED. Exit code 1 if a claim is missed that must hold or, with --quick, is not finite.
The results are written to OUT/results/NAME.json, and from that file the picture to OUT/pictures and tables and claims
to OUT/README.md, one experiment after the other; with --write-page to the same places in configs/papers. An experiment
that cannot be run ends the command. --redraw runs nothing and takes the results that are in configs/papers/results.

Started again, it uses what is in OUT. A run that is done is used whatever its age; more train.steps are trained, and a
config that has changed in more than `train --help` allows with --resume is an error. A probe is used if its config and
number of seeds are the same and it is newer than the program; a measure of a trained run if it is newer than the run,
the program and every script. --quick has the same rules and, by default, an OUT of its own. Delete the folder OUT/NAME
to repeat an experiment.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base import command
from lib.base.command import ROOT, Parser, ScriptError, printable
from lib.base.files import lock, require_output, write_atomically
from lib.base.progress import clock
from papers.lib.papers import PAGE, Claim, config_of, experiment, names_of_experiments
from papers.lib.papers_pictures import save
from papers.lib.papers_results import file_of, load, text_of
from papers.lib.papers_run import sweep
from papers.lib.papers_tables import markdown

FINITE = 1e300  # the range of a quick run's claims


def claims_of(module, results, quick):
    """[(claim, its range in words)] of an experiment; with `quick`, the claims that each of their values is finite."""
    if quick:
        return [(Claim(claim.text, claim.value, -FINITE, FINITE), "any number") for claim in module.claims(results)]
    return [(claim, f"{claim.low:g} to {claim.high:g}") for claim in module.claims(results)]


def block(name, module, results, quick=False):
    """The text of the page between an experiment's two marks: table, picture and claims."""
    pieces = [module.table(results)] if hasattr(module, "table") else []
    if hasattr(module, "picture"):
        pieces.append(f"![{name}](pictures/{name}.png)\n")
    lines = [[claim.text, f"{claim.value:.3g}", expected, claim.verdict]
             for claim, expected in claims_of(module, results, quick)]
    return "\n".join([*pieces, markdown(["claim", "measured", "expected", ""], *lines)])


# A part of the page between its marks: what stands there is the block of the experiment with that name.
PART = re.compile(r"(<!-- results:(\w+) -->\n)(.*?)(<!-- /results:\2 -->)", re.DOTALL)


def fill(page, blocks):
    """The page with the blocks {name: text}; without one for a name, its part says so."""
    return PART.sub(lambda match: match[1] + blocks.get(match[2], "not run\n") + match[4], page)


def blocks_of(page):
    """The blocks {name: text} of the file of a page; none if there is no file."""
    parts = PART.findall(page.read_text(encoding="utf-8")) if page.exists() else []
    return {name: text for _, name, text, _ in parts}


def results_of(name, module, args, folder):
    """The results of an experiment: with --redraw the kept ones, else those of its runs, as they are written to the
    folder."""
    if args.redraw:
        return load(name)
    where = config_of(name), args.out.absolute() / name, args.quick
    results = module.run(*where) if hasattr(module, "run") else sweep(*where, getattr(module, "measure", None))
    write_atomically(file_of(name, folder), text_of(results))
    return load(name, folder)


def reproduce(name, args, page):
    """Runs, draws and judges an experiment. Returns its block of the page, and the number of claims that are missed
    but must hold."""
    started = time.monotonic()
    print(name, flush=True)
    module = experiment(name)
    results = results_of(name, module, args, page.parent / "results")
    if hasattr(module, "picture"):
        save(module.picture(results), page.parent / "pictures" / f"{name}.png")
    claims = claims_of(module, results, args.quick)
    for claim, expected in claims:
        print(f"  {claim.verdict:6} {claim.text:72} {claim.value:8.3g}   expected {expected}")
    print(f"  {clock(time.monotonic() - started)}", flush=True)
    missed = [claim for claim, _ in claims if claim.must_hold and claim.verdict == "MISSED"]
    return block(name, module, results, args.quick), len(missed)


def main():
    """Reads the command line, runs the experiments and writes the page."""
    names = names_of_experiments()
    parser = Parser("reproduce", __doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"an experiment (default: all): {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="tiny models and a few steps, to see that everything "
                        "works; claims are that numbers are finite")
    parser.add_argument("--out", metavar="DIR",
                        help="folder of the runs (default: runs/papers; with --quick runs/papers-quick)")
    parser.add_argument("--write-page", action="store_true",
                        help=f"write tables and pictures to {PAGE.relative_to(ROOT)}")
    parser.add_argument("--redraw", action="store_true", help="only draw and judge the kept results again")
    args = parser.parse_args()
    for name in set(args.names) - set(names):
        parser.error(f"no experiment {name!r}; there are {', '.join(names)}")
    if args.quick and (args.write_page or args.redraw):
        parser.error("--write-page or --redraw with --quick: the numbers of a quick run mean nothing")
    if args.out == "":
        parser.error("--out: the folder's name is empty")
    args.out = Path(args.out or f"runs/papers{'-quick' * args.quick}")
    started = time.monotonic()
    page = PAGE if args.write_page else args.out / PAGE.name
    if not args.write_page:
        require_output(page, [PAGE], mark="<!-- results:")
        if not page.exists() and args.out.is_dir() and any(args.out.iterdir()):
            raise ScriptError(f"--out: {printable(args.out)} has files, but no {PAGE.name} of an earlier call; name "
                              "another folder")
    args.out.mkdir(parents=True, exist_ok=True)
    lock(args.out)
    if not args.redraw and "NORMSCOPE_BINARY" not in os.environ:
        if subprocess.run([ROOT / "scripts" / "build.sh", "normscope"], check=False).returncode:
            raise ScriptError("the program does not build; the lines above say why", 1)
    for folder in ("pictures", "results"):
        (page.parent / folder).mkdir(parents=True, exist_ok=True)
    blocks, failed = blocks_of(page), 0
    write_atomically(page, fill(PAGE.read_text(encoding="utf-8"), blocks))  # by which the folder is known
    for name in [name for name in names if name in args.names or not args.names]:
        blocks[name], count = reproduce(name, args, page)
        failed += count
        write_atomically(page, fill(PAGE.read_text(encoding="utf-8"), blocks))
    print(f"{clock(time.monotonic() - started)} in all; tables and pictures in {page}")
    if failed:
        sys.exit(f"[reproduce] {failed} of the claims {'is' if failed == 1 else 'are'} missed")


if __name__ == "__main__":
    command.main(main, "reproduce")
