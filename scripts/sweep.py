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
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.command import Parser, argument, printable, program, run_command
from lib.grid import folder_name, load_sweep, resolve
from lib.progress import Display, clock, counted
from lib.sweep_runs import Table, mark_ended

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Runner:
    """Trains runs in child processes, `jobs` at a time on `threads` threads each."""

    def __init__(self, base, runs, jobs, threads, table):
        self.base, self.runs, self.jobs, self.threads, self.table = base, runs, jobs, threads, table
        self.waiting = collections.deque(run for run in runs if not run.status)
        self.before = len(self.waiting)  # runs that this sweep has to do
        self.children = {}  # {process: (run, the file of its stderr, when it was started)}
        self.signals, self.display, self.begin = 0, Display(), time.monotonic()

    def train_all(self):
        """Returns when all runs have ended, or after a signal, when all children have saved their state."""
        handlers = {one: signal.getsignal(one) for one in SIGNALS}
        for one, handler in handlers.items():
            if (one, handler) != (signal.SIGHUP, signal.SIG_IGN):  # nohup
                signal.signal(one, self.on_signal)
        try:
            while (self.children or self.waiting) and not self.signals:
                self.step()
                time.sleep(0.02)
        finally:  # an error too lets the children save their state
            if self.children:
                self.display.say(f"stopping: {len(self.children)} running save their state")
            for child in self.children:
                child.terminate()
            for child in self.children:
                child.wait()
            for one, handler in handlers.items():
                signal.signal(one, handler)
            self.display.clear()
        self.table.write()

    def on_signal(self, *_):
        self.signals += 1
        if self.signals > 1:
            for child in self.children:
                child.kill()
            os._exit(130)

    def step(self):
        """Takes the results of what has ended, and starts what can be started."""
        for child in [child for child in self.children if child.poll() is not None]:
            self.finish(child.returncode, *self.children.pop(child))
        while self.waiting and len(self.children) < self.jobs:
            self.start(self.waiting.popleft())
        self.display.show(self.progress)

    def start(self, run):
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM",  # if the sweep is killed, the run saves its state and ends
             program(), "train", argument(self.base), "--out", argument(run.folder), "--quiet", "--threads", str(self.threads),
             "--resume", *run.options()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            process_group=0,  # a terminal's Ctrl-C goes to the sweep alone, which hands it on
            env={**os.environ, **({"OMP_PROC_BIND": "false"} if self.jobs > 1 else {})})  # else all were bound to the same cores
        self.children[child] = run, errors, time.monotonic()

    def finish(self, code, run, errors, begin):
        """Sets the status of a run whose process has ended, says how, and writes the table."""
        with errors:
            errors.seek(0)
            said = errors.read().splitlines()
        if code == 1 and any("another process is writing here" in line for line in said):  # of a killed sweep, or another shard's
            self.waiting.append(run)
            time.sleep(0.5)
            return
        run.status = run.ended() if code in (0, 3) else ""
        if run.status:
            summary = run.read("summary.json")
            loss = summary.get("final_val_loss")
            result = (f"after {counted(summary['steps'], 'step')}" if run.status == "diverged"
                      else f"validation {loss:.4f}" if loss else "")
        else:
            run.status = "failed"
            damaged = "its summary.json is damaged; move the folder away to train it again"
            result = "; ".join(said[-20:]) or (damaged if code == 0 else f"exit code {code}")
        self.display.say(f"{run.status:8}  {run.name}  {result}  {clock(time.monotonic() - begin)}")
        self.table.write()

    def progress(self):
        by_status = collections.Counter(run.status for run in self.runs)
        parts = [f"{by_status[status]} {status}" for status in ("diverged", "failed") if by_status[status]]
        ended = self.before - by_status[""]
        left = f", about {clock((time.monotonic() - self.begin) / ended * by_status[''])} left" if ended else ""
        return f"{by_status['done']} of {len(self.runs)} done, {', '.join([*parts, f'{len(self.children)} running'])}{left}"


def usable_cores():
    """OMP_NUM_THREADS, else the processors that this process may use, at most the container's quota."""
    if given := os.environ.get("OMP_NUM_THREADS"):
        return int(given)
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max", no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split())
        cores = min(cores, -(-quota // period))
    return cores


def print_comparison(folders):
    with contextlib.suppress(ImportError, SystemExit):
        import compare
        print()
        run_command(lambda: compare.main(["--", *folders]), "compare")


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
    args.shard = int(shard), int(shards)
    if args.seeds < 0 or (args.jobs is not None and args.jobs < 1):
        parser.error("--seeds and --jobs: expected a number from 1")
    return args


def main(arguments=None):
    """Trains the sweep; its exit code."""
    args = parse(arguments)
    sweep = load_sweep(args.file, args.set, args.seeds)
    resolve(sweep)
    out = Path(args.out or Path("runs", folder_name(sweep.name)))
    for run in sweep.runs:
        run.folder = out / run.name
    table = Table(out, sweep.keys, sweep.runs)
    shard, shards = args.shard
    runs = sweep.runs[shard - 1::shards]
    mark_ended(runs)
    ended = sum(run.status != "" for run in runs)
    jobs = args.jobs or max(1, min(usable_cores(), len(runs) - ended))
    threads = max(1, usable_cores() // jobs)
    if args.dry_run:
        print(*(f"{run.status or 'to do':8}  {run.name}" for run in runs), "", sep="\n")
    print(f"{printable(sweep.name)}: {counted(len(runs), 'run')}" + f", {ended} of them finished already" * (ended > 0)
          + f"; {jobs} at a time, {counted(threads, 'thread')} each; in {printable(out)}", flush=True)
    if args.dry_run:
        return 0
    out.mkdir(parents=True, exist_ok=True)
    runner = Runner(sweep.base, runs, jobs, threads, table)
    runner.train_all()
    if runner.signals:
        print("interrupted; go on with the same command", file=sys.stderr)
        return 130
    if folders := [str(run.folder) for run in runs if run.status in ("done", "diverged")]:
        print_comparison(folders)
    print(f"\nin {printable(table.path)}")
    failed = sum(run.status == "failed" for run in runs)
    if failed:
        print(f"[sweep] {failed} of {counted(len(runs), 'run')} failed; the lines above say why; the same command tries them again",
              file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run_command(main, "sweep"))
