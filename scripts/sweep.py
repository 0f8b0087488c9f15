#!/usr/bin/env python3
"""Trains every run of a grid, several at a time; started again, it finishes what is missing.

SWEEP.json, in which // comments are allowed:
  { "base": "CONFIG.json", "seeds": [1, 2, 3],
    "grid": { "model.norm_placement": ["pre", "post"], "model.n_layer": [6, 12] },
    "cases": [ { "name": "post-warmup", "set": { "model.norm_placement": "post", "train.warmup_steps": 200 } } ] }

Every point of the grid and every case runs with every seed, as `normscope train --resume` into a folder named after what
varies; DIR/summary.csv has a row a run. A diverged run is a result. Sweeps of the same runs at the same time share the work.
Exit codes: 0 done, 1 a run failed, 2 usage or config error, 130 interrupted: every run's state is saved (a second signal ends at
once).
"""

import collections
import contextlib
import csv
import fcntl
import io
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.command import Parser, ScriptError, argument, printable, program, run_command
from lib.files import write_atomically
from lib.grid import folder_name, load_sweep, resolve, value_text
from lib.progress import Display, clock, counted

FIGURES = ("final_train_loss", "best_val_loss", "final_val_loss", "grad_first_last", "growth", "steps", "seconds", "tokens_per_s")
STATUS = {0: "done", 3: "diverged"}  # of a run, by the program's exit code; else failed
SIGNALS = [one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
           if (one, signal.getsignal(one)) != (signal.SIGHUP, signal.SIG_IGN)]  # nohup


class Table:
    """summary.csv: a row a run that has ended, in the order of the grid. Shards share it."""

    def __init__(self, path, sweep):
        self.path, self.sweep, self.header = path, sweep, ["name", *sweep.keys, "status", *FIGURES]
        self.rows()

    def rows(self):
        """{name: row}; none if it is of another grid. An error if it is no sweep's."""
        if not self.path.exists():
            return {}
        header, *rows = [*csv.reader(self.path.read_text(encoding="utf-8", errors="replace").splitlines())] or [[]]
        if header[:1] != ["name"] or header[-1 - len(FIGURES):] != ["status", *FIGURES]:
            raise ScriptError(f"{printable(self.path)}: is no table of a sweep, and would be replaced by one; move it away, or choose "
                              "another folder with --out DIR")
        return {row[0]: row for row in rows} if header == self.header else {}

    def add(self, run):
        """Writes the row of a run that has ended beside those that are there."""
        cells = [run.name, *map(run.value, self.sweep.keys), run.status, *map(run.summary.get, FIGURES)]
        with open(self.path.with_name(".lock-table"), "w", encoding="utf-8") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            rows, text = {**self.rows(), run.name: map(value_text, cells)}, io.StringIO()
            names = [run.name for run in self.sweep.runs if run.name in rows]
            csv.writer(text, lineterminator="\n").writerows([self.header, *map(rows.get, names)])
            write_atomically(self.path, text.getvalue())


def train_all(runs, jobs, start, table):
    """Trains runs, `jobs` at a time, each in the child process that start(run, file for its stderr) returns. True when all have
    ended; False after a signal. Children get it too: at the first they save their state, at a second they end at once."""
    waiting, children = collections.deque(runs), {}  # {process: (run, its stderr)}
    display, signals, is_stopped = Display(), [], False
    before = {one: signal.signal(one, lambda number, _: signals.append(number)) for one in SIGNALS}
    while children or waiting:
        while signals:
            number, is_stopped = signals.pop(), True
            waiting.clear()
            for child in children:
                child.send_signal(number)
        for child in [child for child in children if child.poll() is not None]:
            run, errors = children.pop(child)
            with errors:
                errors.seek(0)
                said = errors.read().splitlines() or [f"exit code {child.returncode}"]
            if is_stopped:
                continue
            if any("another process is writing here" in line for line in said):  # of a killed sweep, or another shard's
                waiting.append(run)
                time.sleep(0.5)
            else:
                run.status = STATUS.get(child.returncode, "failed")
                table.add(run)
                display.say(ended_text(run, said))
        while waiting and len(children) < jobs:
            run, errors = waiting.popleft(), tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
            children[start(run, errors)] = run, errors
        display.show(lambda: progress(runs, len(children), jobs))
        time.sleep(0.02)
    display.clear()
    for one, handler in before.items():
        signal.signal(one, handler)
    return not is_stopped


def ended_text(run, said):
    """How a run has ended; `said`: lines of its process."""
    loss = run.summary.get("final_val_loss")
    result = f"validation {loss:.4f}" if loss else said[-1] if run.status != "done" else ""
    return f"{run.status:8}  {run.name}  {result}  {clock(run.summary.get('seconds', 0))}"


def progress(runs, running, jobs):
    """The progress line."""
    counts = collections.Counter(run.status for run in runs)
    parts = [f"{counts['done']} of {len(runs)} done", *(f"{counts[one]} {one}" for one in ("diverged", "failed") if counts[one]),
             f"{running} running"]
    if seconds := [run.summary.get("seconds", 0) for run in runs if run.status not in ("", "failed")]:
        parts.append(f"about {clock(statistics.mean(seconds) * counts[''] / jobs)} left")
    return ", ".join(parts)


def usable_cores():
    """OMP_NUM_THREADS, else the processors that this process may use, at most the container's quota."""
    cores = int(subprocess.check_output("nproc"))
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max", no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split())
        cores = min(cores, -(-quota // period))
    return cores


def parse(arguments):
    parser = Parser("sweep", __doc__)
    parser.add_argument("file", metavar="SWEEP.json|CONFIG", help="a sweep, or a config with --set KEY=A,B or --seeds")
    parser.add_argument("--set", metavar="KEY=A,B", action="append", default=[],
                        help="over the file: one value for all runs, several as a grid; commas inside JSON do not split")
    parser.add_argument("--seeds", metavar="N", type=int, default=0, help="each with the seeds 1 ... N")
    parser.add_argument("--out", metavar="DIR", help="folder of the runs' folders (default: runs/<name>)")
    parser.add_argument("--jobs", metavar="N", type=int, help="runs at a time, each on its share of the cores (default: one a core)")
    parser.add_argument("--shard", metavar="I/N", default="1/1",
                        help="only every N-th run, from the I-th: for job arrays that share DIR")
    parser.add_argument("--dry-run", action="store_true", help="list the runs; run nothing")
    args = parser.parse_args(arguments)
    shard, _, shards = args.shard.partition("/")
    if not (shard.isdigit() and shards.isdigit() and 1 <= int(shard) <= int(shards)):
        parser.error(f"--shard: got {args.shard}; expected I/N with I from 1 to N, such as 2/4")
    if args.seeds < 0 or (args.jobs is not None and args.jobs < 1):
        parser.error("--seeds and --jobs: expected a number from 1")
    return args


def main(arguments=None):
    """Trains the sweep; its exit code."""
    args = parse(arguments)
    sweep = load_sweep(args.file, args.set, args.seeds)
    resolve(sweep)
    out = Path(args.out or Path("runs", folder_name(sweep.name)))
    table = Table(out / "summary.csv", sweep)
    shard, shards = map(int, args.shard.split("/"))
    runs = sweep.runs[shard - 1::shards]
    jobs = args.jobs or max(1, min(usable_cores(), len(runs)))
    threads = max(1, usable_cores() // jobs)
    print(f"{printable(sweep.name)}: {counted(len(runs), 'run')}; {jobs} at a time, {counted(threads, 'thread')} each; "
          f"in {printable(out)}", flush=True)
    if args.dry_run:
        print(*(run.name for run in runs), sep="\n")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        run.folder = out / run.name

    def start(run, errors):
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM",  # if the sweep is killed, the run saves its state and ends
             program(), "train", argument(sweep.base), "--out", argument(run.folder), "--quiet", "--resume", "--threads", str(threads),
             *run.options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            process_group=0,  # a terminal's Ctrl-C goes to the sweep alone, which hands it on
            env={**os.environ, **({"OMP_PROC_BIND": "false"} if jobs > 1 else {})})  # else all were bound to the same cores

    if not train_all(runs, jobs, start, table):
        print("interrupted; go on with the same command", file=sys.stderr)
        return 130
    count = collections.Counter(run.status for run in runs)
    if count["failed"] < len(runs):
        print(flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name("compare.py"), argument(out)], check=False)
    print(f"\nin {printable(table.path)}")
    if count["failed"]:
        print(f"[sweep] {count['failed']} of {counted(len(runs), 'run')} failed; the lines above say why; the same command tries "
              "them again", file=sys.stderr)
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(run_command(main, "sweep"))
