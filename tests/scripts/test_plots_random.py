#!/usr/bin/python3
"""Pictures of random made-up runs cannot mislead: each segment drawn in a group's colour joins two neighbouring rows of
its logs, and each finite value lies inside its panel or is marked. Runs end early, in one row or in nan, and have
values such as 3e12 and 0.

test_plots_random.py [COUNT [FIRST_SEED]] draws so many folders, each as every kind of picture; without it 24, each as
its loss and as one other kind, in the long form 300."""

import functools
import itertools
import json
import math
import random
import sys
import unittest

import numpy as np
from cli import LONG, read_csv
from made_runs import MadeRuns

import plot  # in scripts, which made_runs.py puts on the path
from lib.base.command import ScriptError
from lib.figures.layout import styled
from lib.compare.groups import group_by_config
from lib.base.keys import PLACEMENTS
from lib.base.tables import csv_text
from lib.figures.panels import tick_text
from lib.page.report_data import page_data
from lib.logs.runs import find_runs
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

COUNT, FIRST_SEED, EVERY_KIND = 300 if LONG else 24, 0, LONG
KEYS = {"model__norm_placement": list(PLACEMENTS)[:4], "train__lr": [0.1, 0.2, 0.3, 0.4],
        "model__n_layer": [1, 2, 3, 6]}
MEASURED = {"rms", "grad_rms", "branch_share", "token_cosine", "train_loss", "val_loss", "grad_norm", "clip_factor",
            "max_logit", "entropy", "first_share", "update_rms"}
OTHERS = [kind for kind in plot.KINDS if kind not in ("loss", "measure")]  # made-up runs have no weights


@functools.cache
def logged(path):
    """The rows of a log as dicts of texts."""
    return read_csv(path)[1]


def numbers(rows, column):
    """The finite values of a column."""
    return [value for row in rows if row[column] and math.isfinite(value := float(row[column]))]


class RandomPictures(MadeRuns):
    def drawn_runs(self, seed):
        """The groups of a folder of one to four configs, each with one to three seeds."""
        r = random.Random(seed)
        key = r.choice(list(KEYS))
        for value in r.sample(KEYS[key], r.randint(1, 4)):
            seeds = r.choice([1, 1, 2, 3])
            for number in range(1, seeds + 1):
                steps = [1, *range(10, r.choice([10, 20, 60, 61, 200]), 10)]
                folder = self.make(f"{seed}/{value}-{number}", steps=steps, diverged=r.random() < 0.3,
                                   train__seed=number, **{key: value})
                for name in ("layers", "heads", "metrics", "params"):
                    self.shake(folder / f"{name}.csv", r)
                summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
                final = [{"final_val_loss": loss} for loss in numbers(logged(folder / "metrics.csv"), "val_loss")[-1:]]
                (folder / "summary.json").write_text(json.dumps(dict(summary, **dict(*final))), encoding="utf-8")
        return styled(group_by_config(find_runs([self.root / str(seed)], "layers.csv")))

    def shake(self, path, r):
        """Changes the measured values of a log: most a little, a few to nan, inf, 0 or 3e12."""
        rows, wild = logged.__wrapped__(path), r.choice([0, 0.01, 0.1])
        for row in rows:
            for column in MEASURED & set(row):
                if row[column] and math.isfinite(float(row[column])):
                    changed = float(row[column]) * r.lognormvariate(0, 0.5)
                    row[column] = r.choice(["nan", "inf", 0, 3e12, 7.5]) if r.random() < wild else changed
        path.write_text(csv_text([[*rows[0]], *(row.values() for row in rows)]), encoding="utf-8")

    def check_lines(self, axes, groups):
        """Each line of a group joins neighbouring rows."""
        for line in axes.lines:
            group = groups.get(to_hex(line.get_color()))
            if (group is None or line.get_transform() != axes.transData or line.get_linestyle() == "None"
                    or axes.get_xlabel().startswith(("train.", "model."))):
                continue
            rows = sorted({int(row["step"]) for run in group.runs for row in logged(run.folder / "metrics.csv")})
            places = rows if axes.get_xlabel() == "step" else list(range(group.runs[0].value("model.n_layer") + 1))
            for (x0, y0), (x1, y1) in itertools.pairwise(line.get_xydata()):
                if math.isfinite(y0 + y1):
                    self.assertIn((x0, x1), list(itertools.pairwise(places)))

    def check_values(self, axes, groups):
        """What is drawn outside the limits has an arrow of its colour with the farthest value."""
        low, high = axes.get_ylim()
        marks = {(to_hex(mark.get_color()), mark.get_text()) for mark in axes.texts}
        for artist in [*axes.lines, *axes.collections]:
            is_line = isinstance(artist, Line2D)
            color = to_hex(artist.get_color() if is_line else [*artist.get_facecolor(), *artist.get_edgecolor()][0])
            if color in groups and artist.get_transform() == axes.transData and not isinstance(artist, QuadMesh):
                paths = [artist.get_path()] if is_line else artist.get_paths()
                heights = [y for path in paths for y in path.vertices[:, 1] if math.isfinite(y)] or [low]
                arrows = "".join(text for at, text in marks if at == color)
                self.assertTrue(min(heights) >= low or "▼" in arrows, marks)
                self.assertTrue(max(heights) <= high or "▲" in arrows, marks)

    def check_loss(self, axes, groups):
        marks = [mark.get_text() for mark in axes.texts]
        for group in groups.values():
            rows = [row for run in group.runs for row in logged(run.folder / "metrics.csv")]
            if not group.diverged:
                self.assertLessEqual(max(numbers(rows, "val_loss"), default=0), axes.get_ylim()[1])
            largest = max(numbers(rows, "train_loss") + numbers(rows, "val_loss"), default=0)
            if len(group.runs) == 1 and largest > axes.get_ylim()[1]:
                self.assertTrue(any(tick_text(float(f"{largest:.3g}")) in text for text in marks), (largest, marks))

    def check_map(self, figure, groups):
        """Every cell of a map has the colour of its value, and a 0 one of its own."""
        meshes = [mesh for axes in figure.axes for mesh in axes.collections if isinstance(mesh, QuadMesh)]
        for mesh in meshes:
            self.assertTrue((np.ma.asarray(mesh.get_array()).compressed() <= mesh.norm.vmax).all())
        rows = [row for group in groups.values() for run in group.runs for row in logged(run.folder / "layers.csv")
                if row["site"] == "stream"]
        words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        self.assertEqual("zero" in words, 0 in numbers(rows, "rms") + numbers(rows, "grad_rms"))

    def check_page(self, groups):
        """The page's lines are those of the picture."""
        data = page_data(groups)
        for group, drawn in zip(groups, data["groups"]):
            losses = drawn["losses"]
            self.assertEqual(drawn["label"], group.label)
            rows = [row for run in group.runs for row in logged(run.folder / "metrics.csv")]
            self.assertLessEqual(set(losses["x"]), {int(row["step"]) for row in rows})
            for name in ("train", "val"):
                mean, least, most = losses[name]
                self.assertEqual([loss is None for loss in mean], [loss is None for loss in least])
                if len(group.runs) == 1:
                    self.assertEqual(float(f"{max(numbers(rows, name + '_loss'), default=0):.5g}"),
                                     max(filter(None, most), default=0))

    def test_pictures(self):
        for number in range(FIRST_SEED, FIRST_SEED + COUNT):
            groups = self.drawn_runs(number)
            by_color = {to_hex(group.color): group for group in groups}
            self.assertEqual(len(by_color), len(groups))
            for kind in ["loss", *(OTHERS if EVERY_KIND else [OTHERS[number % len(OTHERS)]])]:
                with self.subTest(number, kind=kind):
                    try:
                        figure = plot.KINDS[kind].plot(groups)
                    except ScriptError as error:
                        self.assertRegex(str(error), "a map needs two|no two runs differ|no validation loss yet")
                        continue
                    for axes in figure.axes:
                        self.check_lines(axes, by_color)
                        self.check_values(axes, by_color)
                    if kind == "loss":
                        self.check_loss(figure.axes[0], by_color)
                    if kind == "heatmap":
                        self.check_map(figure, by_color)
            self.check_page(groups)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT, FIRST_SEED, EVERY_KIND = int(sys.argv[1]), int((sys.argv[2:3] or ["0"])[0]), True
        del sys.argv[1:3]
    unittest.main()
