"""Lines of progress, on a terminal or in a pipe."""

import os
import shutil
import sys
import time

from lib.command import printable


class Display:
    """Lines on stdout, and below them a progress line: on a terminal in place, in a pipe a whole one every 10 s."""

    def __init__(self):
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.seconds = 0.5 if self.is_terminal else 10
        self.due = time.monotonic() + self.seconds

    def clear(self):
        print(end="\r\x1b[K" if self.is_terminal else "", flush=True)

    def say(self, line):
        self.clear()
        print(printable(line), flush=True)

    def show(self, make_line):
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + self.seconds
        if self.is_terminal:
            print(end="\r\x1b[K" + make_line()[:shutil.get_terminal_size().columns - 1], flush=True)
        else:
            self.say(make_line())


def clock(seconds):
    seconds = round(seconds)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}" if seconds >= 3600 else f"{seconds // 60}:{seconds % 60:02}"


def counted(count, noun):
    return f"{count} {noun}" + "s" * (count != 1)
