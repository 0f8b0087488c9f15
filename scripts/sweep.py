#!/usr/bin/env python3
"""Trains every run of a grid, several at a time. Started again, it trains what is left.

SWEEP.json, in which // comments are allowed:
  { "base": "CONFIG.json", "seeds": [1, 2, 3],
    "grid": { "model.norm_placement": ["pre", "post"],
              "batch": { "small": { "train.batch_size": 2, "train.steps": 1200 },
                         "large": { "train.batch_size": 8, "train.steps": 300 } } },
    "cases": [ { "name": "post-warmup", "set": { "model.norm_placement": "post", "train.warmup_steps": 200 } } ] }

An entry of the grid lists the values of a key, or names values that set several keys together. A case is a run that
does not fit the grid. Every point of the grid and every case runs with every seed, in a folder named after what varies:
DIR/norm_placement=pre_batch=small_seed=1, DIR/post-warmup_seed=1. There "-" stands for each character but a-z, A-Z, 0-9
and ._=+-, and a name of more than 100 characters is cut and ends with a hash. DIR/summary.csv has a row for each run
that is done, diverged or failed, those of other sweeps in DIR too. DIR/labels.json has the names of values and cases:
tables, pictures and the page show a name instead of the keys that it sets, which stand in compare.py's remarks. Sweeps
of the same runs at the same time share the work.

Each run is started as `normscope train --resume`, also when the same command is given again. The program decides what
is left to do: without a checkpoint it starts at step 0; from a checkpoint before train.steps it goes on; a run that is
done it leaves as it is, unless train.steps was raised; a run whose config has changed in more than `train --help`
allows with --resume it refuses. So it tries a diverged run again from its last checkpoint, and that ends in the same
way. A run that the system kills, mostly for lack of memory, is failed in summary.csv (compare.py calls it stopped), and
the others go on; with a smaller --jobs fewer runs need memory at a time.

Exit codes: 0 every run is done or diverged; 1 a run failed, or the table could not be written; 2 usage or config error;
130 interrupted, with the state of the runs saved (a second SIGINT or SIGTERM ends at once, without that).
"""

import argparse
import collections
import contextlib
import json
import math
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base import command, processors
from lib.base.command import Parser, ScriptError, argument, printable, program
from lib.base.files import read_json
from lib.base.progress import Display, clock, counted
from lib.sweeps import sweep_time
from lib.sweeps.grid import MOST_RUNS, folder_name, load_sweep, resolve
from lib.sweeps.sweep_folder import Table, steps_left

STATUS = {0: "done", 3: "diverged"}  # of a run, by the program's exit code; else "failed"
SIGNALS = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
                                 signal.SIGALRM, signal.SIGVTALRM, signal.SIGHUP)
           if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]  # nohup ignores SIGHUP
KILLED = ", as the system does if memory is short: take a smaller --jobs"
WAIT = 0.2  # seconds between two attempts to lock runs that other sweeps train


def train_all(runs, jobs, start, table):
    """Trains runs, `jobs` at a time, each in the child process that start(run, file for its stderr) returns. True when
    all have ended; False after a signal, which the children get too: at the first they save their state, at a second
    they end at once."""
    waiting, children = list(runs), {}  # {process: (run, its stderr)}
    display, signals, is_stopped = Display(), queue.SimpleQueue(), False
    before = {number: signal.signal(number, lambda number, _: signals.put(number))
              for number in (*SIGNALS, signal.SIGCHLD)}
    while children or waiting:
        for run in [*waiting]:
            if len(children) == jobs:
                break
            if table.locks.acquire(run):
                waiting.remove(run)
                run.started = time.monotonic()
                errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", newline="\n")
                children[start(run, errors)] = run, errors
        display.show(lambda: progress(runs, len(children), jobs))
        with contextlib.suppress(queue.Empty):  # a signal ends the pause; that of a child's end is SIGCHLD
            if (number := signals.get(timeout=WAIT)) != signal.SIGCHLD:
                is_stopped = True
                waiting.clear()
                for child in children:
                    child.send_signal(number)
        for child in [child for child in children if child.poll() is not None]:
            run, errors = children.pop(child)
            with errors:
                errors.seek(0)
                output = errors.read().strip()
            table.locks.release(run)
            if is_stopped and (child.returncode == 130 or child.returncode < 0):  # the signal has ended it
                continue
            line, earlier = end_run(run, child.returncode, output), table.problem
            table.write(run)
            if table.problem not in ("", earlier):
                display.print_line(f"{table.problem}; the sweep goes on, and tries again after each run")
            display.print_line(line)
    display.clear()
    for number, handler in before.items():
        signal.signal(number, handler)
    return not is_stopped


def end_run(run, code, output):
    """Sets the status and summary of a run whose process has ended with this exit code and output on stderr. Returns
    the line to print: "done      lr=0.01  validation 2.5123  0:42"."""
    run.status = STATUS.get(code, "failed")
    ended = f"ended by signal {-code}" + KILLED * (code == -signal.SIGKILL) if code < 0 else f"exit code {code}"
    message = output.split("\n")[-1] or ended
    if run.status != "failed":
        try:
            run.summary = read_json(run.folder / "summary.json")
        except (ScriptError, OSError) as error:
            run.status, message = "failed", str(error)
    if loss := run.summary.get("final_val_loss"):
        message = f"validation {loss:.4f}"
    elif run.status == "done":
        message = ""
    duration = clock(run.summary["seconds"]) if "seconds" in run.summary else ""
    return f"{run.status:8}  {run.name}  {message}  {duration}".rstrip()


def progress(runs, running, jobs):
    """The line of progress."""
    counts = collections.Counter(run.status for run in runs)
    others = [f"{counts[status]} {status}" for status in ("diverged", "failed") if counts[status]]
    parts = [f"{counts['done']} of {len(runs)} done", *others, f"{running} running"]
    if (seconds := sweep_time.seconds_left(runs, jobs)) is not None:
        parts.append(f"about {clock(seconds)} left")
    return ", ".join(parts)


def usable_cores():
    """OMP_NUM_THREADS, else the number of processors that this process may use, at most its quota."""
    with contextlib.suppress(KeyError, ValueError):
        return max(1, math.ceil(min(int(os.environ["OMP_NUM_THREADS"]), processors.quota())))
    return processors.usable()


def time_text(runs, jobs, start):
    """What a dry run says of the steps that are left to train of runs."""
    left = [(run, steps) for run in runs if (steps := steps_left(run))]
    if not left:
        return "all runs are done"
    runs, shares = zip(*((run, steps / run.config["train"]["steps"]) for run, steps in left))
    seconds = sweep_time.expected_seconds(runs, shares, jobs, start)
    time = "no step could be timed" if seconds is None else f"about {clock(seconds)}"
    return f"{counted(len(runs), 'run')} to train, {time} on {counted(usable_cores(), 'core')}"


def shard_of(text):
    """The numbers (I, N) of the option --shard."""
    numbers = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise argparse.ArgumentTypeError(f"got {text}; expected I/N with I from 1 to N, such as 2/4")
    return int(numbers[1]), int(numbers[2])


def parse(arguments):
    """The parsed command line."""
    parser = Parser("sweep", __doc__)
    parser.add_argument("file", metavar="SWEEP.json|CONFIG", help="a sweep, or a config with --set KEY=A,B or --seeds")
    parser.add_argument("--set", metavar="KEY=A,B", action="append", default=[],
                        help="over the base config: one value for all runs, several as a grid; a key that the file's "
                        "grid sets is refused; commas in JSON do not split")
    parser.add_argument("--seeds", metavar="N", type=int, default=0, help="each with the seeds 1 ... N")
    parser.add_argument("--out", metavar="DIR", help="folder of the runs' folders (default: runs/<name>)")
    parser.add_argument("--jobs", metavar="N", type=int,
                        help="runs at a time, each on its share of the cores, or of OMP_NUM_THREADS, whatever "
                        "train.threads says (default: one a core, and no more than there are runs)")
    parser.add_argument("--shard", metavar="I/N", type=shard_of, default=(1, 1),
                        help="only every N-th run, from the I-th: for job arrays that share DIR")
    parser.add_argument("--dry-run", action="store_true",
                        help="list the runs, and say how many are left to train and how long that will take, by "
                        "some steps of each shape; runs that the program would refuse are not found")
    args = parser.parse_args(arguments)
    if not 0 <= args.seeds <= MOST_RUNS or (args.jobs is not None and args.jobs < 1):
        parser.error(f"expected --seeds from 0 to {MOST_RUNS:,} and --jobs from 1")
    return args


def main(arguments=None):
    """Trains the sweep. Returns the exit code."""
    args = parse(arguments)
    sweep = load_sweep(args.file, args.set, args.seeds)
    resolve(sweep)
    out = Path(args.out or Path("runs", folder_name(sweep.name)))
    table = Table(out / "summary.csv", sweep)
    shard, shards = args.shard
    runs = sweep.runs[shard - 1::shards]
    for run in runs:
        run.folder = out / run.name
    jobs = args.jobs or max(1, min(usable_cores(), len(runs)))
    threads = max(1, usable_cores() // jobs)
    print(f"{printable(sweep.name)}: {counted(len(runs), 'run')}; {jobs} at a time, {counted(threads, 'thread')} each; "
          f"in {printable(out)}", flush=True)
    # If the sweep is killed, the run saves its state and ends; without setpriv it goes on by itself.
    on_death = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    env = dict(os.environ)
    if jobs > 1:
        env["OMP_PROC_BIND"] = "false"  # otherwise all runs would be bound to the same cores

    def start(run, errors):
        """Starts the training of a run, which writes its messages to the file `errors`. Its config comes by stdin, as a
        value may be longer than an argument."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as config:
            json.dump(run.config, config)
            config.seek(0)
            return subprocess.Popen(
                [*on_death, program(), "train", "/dev/stdin", "--out", argument(run.folder), "--quiet", "--resume",
                 "--threads", str(threads)],
                stdin=config, stdout=subprocess.DEVNULL, stderr=errors,
                process_group=0,  # a terminal's Ctrl-C goes to the sweep alone, which passes it on
                env=env)

    if args.dry_run:
        print(*(run.name for run in runs), sep="\n", flush=True)
        print(time_text(runs, jobs, start))
        return 0
    table.open()
    if not train_all(runs, jobs, start, table):
        print("interrupted; go on with the same command", file=sys.stderr)
        return 130
    table.write()
    counts = collections.Counter(run.status for run in runs)
    if counts["done"] + counts["diverged"]:
        print(flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name("compare.py"), argument(out)], check=False)
    print(f"\nin {printable(table.path)}")
    return report_problems(counts, table.problem)


def report_problems(counts, problem):
    """Prints the number of failed runs and the problem of the table. Returns the exit code."""
    if counts["failed"]:
        print(f"[sweep] {counts['failed']} of {counted(counts.total(), 'run')} failed; the lines above say why; once "
              "that is mended, the same command tries them again", file=sys.stderr)
    if problem:
        print(f"[sweep] {problem}; the results are in the folders of the runs, and the same command writes the table",
              file=sys.stderr)
    return int(bool(counts["failed"] or problem))


if __name__ == "__main__":
    command.main(main, "sweep")
