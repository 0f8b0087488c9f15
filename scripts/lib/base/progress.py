"""Progress of long work, on a terminal or in a pipe."""

import os
import shutil
import sys
import time

from lib.base.command import printable


class Display:
    """Lines on stdout, and a line of progress. A terminal shows it below the others and rewrites it in place; a pipe
    gets a whole line every 10 s."""

    def __init__(self):
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.seconds = 0.5 if self.is_terminal else 10
        self.due = time.monotonic() + self.seconds

    def clear(self):
        """Removes the line of progress from a terminal."""
        print(end="\r\x1b[K" if self.is_terminal else "", flush=True)

    def print_line(self, line):
        """Prints a line above that of progress."""
        self.clear()
        print(printable(line), flush=True)

    def show(self, make_line):
        """Shows the line of progress that make_line() returns, if it is time for one."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + self.seconds
        if self.is_terminal:
            print(end="\r\x1b[K" + make_line()[:shutil.get_terminal_size().columns - 1], flush=True)
        else:
            self.print_line(make_line())


def clock(seconds):
    """A duration: 0:09, 12:30, 3:02:10."""
    seconds = round(seconds)
    minutes_and_seconds = f"{seconds // 60 % 60}:{seconds % 60:02}"
    return f"{seconds // 3600}:{minutes_and_seconds:0>5}" if seconds >= 3600 else minutes_and_seconds


def counted(count, noun):
    """A count with its noun: 1 run, 2 runs."""
    return f"{count} {noun}" + "s" * (count != 1)
