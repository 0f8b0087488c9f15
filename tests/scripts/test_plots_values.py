#!/usr/bin/python3
"""Compares what the scripts draw with the logs of made-up runs and with explicit arithmetic: maps, branches, heads,
levels."""

import itertools
import json
import math
import re
import subprocess
import sys
import unittest

import numpy as np
from cli import merged
from made_runs import CONFIG, NGRAMS, SCRIPTS, MadeRuns

import plot  # in scripts, which made_runs.py puts on the path
from lib.figures import (curves, layout, panels, plot_branches, plot_cosine, plot_final, plot_heads, plot_heatmap,
                         plot_layers, plot_loss, plot_steps, plot_updates)
from lib.base.keys import PLACED
from lib.compare.groups import Group, group_by_config
from lib.base.command import ScriptError
from lib.figures import matplotlib
from lib.figures.curves import Curve, Extra, Measure, Panel
from lib.figures.drawing import drawing
from lib.logs.runs import Run, find_runs
from lib.logs.sites import Site


class Maps(MadeRuns):
    def test_seeds_are_averaged_as_factors(self):
        runs = [Run(self.make(f"s{seed}", train__seed=seed, steps=steps))
                for seed, steps in ((1, (1, 10, 20)), (3, (1, 20, 30)))]
        (group,) = group_by_config(runs)
        heat_map = plot_heatmap.HeatMap(group, "stream")
        self.assertEqual(heat_map.steps.tolist(), [1, 10, 20, 30])
        np.testing.assert_allclose(heat_map.rms, np.tile([1, 2, 3, 4], (4, 1)))
        both, first, third = math.sqrt(1.1 * 1.3), 1.1, 1.3
        np.testing.assert_allclose(heat_map.grad[:, 2], 1e-3 * np.array([both, first, both, third]))

    def test_a_site_begins_where_it_is_logged(self):
        heat_map = plot_heatmap.HeatMap(Group([Run(self.make("r", diverged=True))], "r"), "attn_out")
        self.assertEqual((heat_map.first, heat_map.divergences), (1, [60]))
        np.testing.assert_allclose(heat_map.rms[0], [np.nan, 0.25, 0.5, 0.75])
        with self.assertRaisesRegex(ScriptError, "no row of step 7 .* nearest: 1 and 10|nearest: 10 and 1"):
            Site(Run(self.root / "r")).index(7)

    def test_the_scale_holds_for_all_and_spans_a_factor_of_two(self):
        maps = [plot_heatmap.HeatMap(Group([Run(self.make(name, decay=decay))], name), "stream")
                for name, decay in (("a", 1.0), ("b", 0.01))]
        for some, limits in ((maps, (1.1e-9, 1.1e-3)), (maps[:1], (1.1e-3 / 2 ** 0.5, 1.1e-3 * 2 ** 0.5))):
            np.testing.assert_allclose(plot_heatmap.color_scale(some, "grad"), limits)

    def test_the_cells_drawn_are_the_values_block_upward(self):
        pre, post = self.make("pre"), self.make("post", diverged=True, decay=0.1, model__norm_placement="post")
        groups = layout.styled(group_by_config([Run(pre), Run(post)]))
        figure = plot_heatmap.plot(groups)
        meshes = [mesh for axes in figure.axes for mesh in axes.collections if hasattr(mesh, "get_coordinates")]
        meshes = [mesh for mesh in meshes if mesh.get_array().size == 4 * 7]  # less those of the colour keys
        self.assertEqual(len(meshes), 4)
        cells = [mesh.get_array().reshape(4, 7) for mesh in meshes]  # activation and gradient of pre, then of post
        np.testing.assert_allclose(cells[0][:, 0], [1, 2, 3, 4])
        np.testing.assert_allclose(cells[3][:, 0], 1.1e-3 * 0.1 ** np.arange(4))
        self.assertTrue(np.ma.getmaskarray(cells[3])[:, -1].all())
        self.assertEqual(meshes[1].norm.vmin, meshes[3].norm.vmin)
        y = meshes[0].get_coordinates()[:, 0, 1]
        self.assertEqual((y[0], y[-1]), (-0.5, 3.5))
        self.assertEqual(figure.axes[0].get_xticks().tolist(), [1, 2, 5, 10, 20, 50])


class Axes(MadeRuns):
    def test_a_diverged_run_is_drawn_as_far_as_the_others_allow(self):
        fine, lost = ([1.0, 2.0], [False]), ([2.0, 1e20], [True])
        for drawn, is_cut in (([fine, lost], True), ([lost], False)):
            panel = Panel(Measure("", "", "", None), "", False, 0,
                          [Curve(None, np.arange(2), np.array([values]), is_lost) for values, is_lost in drawn])
            (scaled,) = curves.with_scales([panel], False)
            self.assertEqual(scaled.scale.high < 1e14, is_cut)

    def test_lines_beside_those_of_runs(self):
        axes, values = drawing(layout.Figure)().subplots(), np.array([1.0, 4.0, 2.0])
        curves.draw_extras(axes, [Extra(values, layout.MARK, "--"), Extra(7.0, layout.MARK, "-")])
        line, level = axes.lines
        self.assertEqual((line.get_xydata().tolist(), level.get_ydata()), ([[0, 1], [1, 4], [2, 2]], [7, 7]))

    def on_lines(self, axes, name):
        """Whether the text of an annotation lies on a line."""
        note = next(note for note in axes.texts if name in note.get_text())
        note.update_positions(axes.figure.canvas.get_renderer())
        box = matplotlib.text.Text.get_window_extent(note)
        return any(line.get_transform().transform_path(line.get_path()).intersects_bbox(box, filled=False)
                   for line in axes.lines)

    def test_names_and_marks_lie_on_no_line_and_leave_the_curves_their_axis(self):
        shallow, deep = self.make("shallow"), self.make("deep", model__n_layer=12)
        rows = (shallow / "metrics.csv").read_text().splitlines()
        (shallow / "metrics.csv").write_text("\n".join([rows[0], "1,8,1,40.5,,0.001,1,1,1,1,1,1", *rows[2:]]) + "\n")
        axes = plot.loss(shallow, deep).axes[0]
        self.assertFalse(self.on_lines(axes, "▲ 40.5"))
        self.assertIn("▲ ▼: the farthest value beyond the axis", [text.get_text() for text in axes.figure.texts])
        self.assertEqual([note.get_text() for note in axes.texts if "gram" in note.get_text()],
                         ["unigram 2.75", "bigram 1.50"])
        self.assertLess(axes.get_xlim()[1], 1.2 * 60)

    def test_smoothing(self):  # over a twentieth: of 20 rows among 400, what fills the larger half stays
        losses = np.zeros(400)
        losses[100:109] = losses[200:212] = 1
        self.assertEqual(np.flatnonzero(plot_loss.smooth(losses, range(400))).tolist(), list(range(200, 212)))

    def test_the_line_of_diverging_seeds_lies_in_their_band_and_is_thinned(self):
        folders, steps = [], np.arange(1, 5001)
        for seed in (1, 2, 3):
            folders.append(self.make(f"s{seed}", train__seed=seed, diverged=True))
            losses = np.exp(np.random.default_rng(seed).normal(0, 5, 5000) + np.maximum(0, steps - 4900) / 3)
            (folders[-1] / "metrics.csv").write_text("step,train_loss,val_loss,tokens\n" + "".join(
                f"{step},{loss},,1\n" for step, loss in zip(steps, losses)))
        (group,) = layout.styled(group_by_config([Run(folder) for folder in folders]))
        tables = {run: plot_loss.loss_table(run, "step") for run in group.runs}
        drawn = plot_loss.losses_of(group, tables, log=True)
        mean, low, high = panels.band(drawn.rows, log=True)
        np.testing.assert_allclose(mean, np.exp(np.log(drawn.rows).mean(axis=0)))
        np.testing.assert_array_equal([low, high], [drawn.low, drawn.high])
        self.assertTrue((low <= mean).all() and (mean <= high).all() and mean.size == plot_loss.MOST_POINTS)
        for row, table in zip(drawn.rows, tables.values()):
            self.assertLessEqual(set(row), set(table[:, plot_loss.TRAIN]))  # no value that no row has

    def test_a_loss_that_is_never_low_is_in_the_picture(self):
        low, high, log = plot_loss.limits([np.array([4.0, 3.0, 2.5]), np.array([800.0, 700.0])], [], {"uniform": 4.3})
        self.assertTrue(log and low < 2.5 and high > 800)


class Styles(MadeRuns):
    """The distinction of lines, and that a figure leaves no setting behind."""

    def groups(self, **grid):
        """The groups of a sweep over a grid, {key: values}, whose runs have no files."""
        sweep = self.root / f"sweep-{len(list(self.root.iterdir()))}"
        sweep.mkdir()
        (sweep / ".lock").touch()
        made = []
        for values in itertools.product(*grid.values()):
            config = {**CONFIG, "name": str(len(made))}
            for key, value in zip(grid, values):
                section, name = key.split("__")
                config = merged(config, {section: {name: value}})
            made.append(Run(sweep / str(len(made)), config, {"status": "done"}))
        return layout.styled(group_by_config(made))

    def test_a_placement_has_one_colour_in_every_figure(self):
        every = {group.placement: group for group in self.groups(model__norm_placement=PLACED)}
        self.assertEqual(len({(g.color, g.dash) for g in every.values()}), len(PLACED))
        for some in (["sandwich", "pre"], ["post", "peri", "sandwich"]):
            for group in self.groups(model__norm_placement=some, model__norm=["layernorm", "rmsnorm"]):
                self.assertEqual(group.color, every[group.placement].color)
                self.assertEqual(group.dash, layout.LINES["rmsnorm" in group.label])

    def test_no_two_lines_of_a_grid_look_alike(self):
        rates, pair, norms = [round(0.001 * i, 3) for i in range(1, 26)], ["pre", "post"], ["layernorm", "rmsnorm"]
        for grid, titles, colors, dashes in (
                ({"model__norm_placement": pair, "model__norm": norms}, [""], 2, 2),
                ({"model__norm_placement": PLACED, "model__norm": norms}, norms, 7, 2),
                ({"train__lr": rates}, [""], 25, 3),
                ({"model__norm_placement": pair, "train__lr": rates[:15]}, [""], 15, 2),
                ({"model__norm_placement": pair, "model__n_layer": [2, 3, 4], "train__lr": [0.1, 0.2, 0.3]},
                 ["L 2", "L 3", "L 4"], 2, 3)):
            groups = self.groups(**grid)
            with self.subTest(grid):
                self.assertEqual([title for title, _ in layout.facets(groups)], titles)
                self.assertEqual([len({g.color for g in groups}), len({g.dash for g in groups})], [colors, dashes])
                self.assertEqual(len({(g.panel, g.color, g.dash, g.marker) for g in groups}), len(groups))
        self.assertEqual([handle.get_label() for handle in layout.group_handles(groups)],
                         ["pre", "post", "lr 0.1", "lr 0.2", "lr 0.3"])
        *_, notes = layout.split_by_values(groups + groups[:2], lambda group: group is not groups[0])
        self.assertEqual(notes, ["Without a finite value: pre · L 2 · lr 0.1."] * 2
                         + ["2 of the lines look like others; name fewer runs."])

    def test_a_label_that_begins_with_an_underscore_is_in_the_legend(self):
        with layout.look():
            figure, _ = layout.new_figure(1, 1, 3, "", "", [layout.line_handle("_one", layout.INK, "-", "o")])
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()], ["_one"])

    def test_names_of_levels_do_not_overlap(self):
        axes = drawing(layout.Figure)().subplots()
        plot_loss.draw_levels(axes, {"low": 0.5, "high": 0.9, "near": 0.89, "outside": 2})
        renderer = layout.FigureCanvasAgg(axes.figure).get_renderer()
        boxes = [note.get_window_extent(renderer) for note in axes.texts]
        self.assertEqual([note.get_text() for note in axes.texts], ["high", "near", "low"])
        self.assertFalse(any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)))

    def test_importing_and_drawing_leave_matplotlib_as_it_was(self):
        self.make("run")
        code = (
            "import sys, logging, warnings, matplotlib; matplotlib.rcParams['font.size'] = 17; sys.path.append(sys.argv[1]);"
                "before = matplotlib.rcParams.copy(), logging.getLogger('matplotlib').level, list(warnings.filters);"
                "import plot;"
                "figures = [plot.heatmap('run'), plot.layers('run', paper=3.25, step=1)];"
                "assert before == (matplotlib.rcParams.copy(), logging.getLogger('matplotlib').level, list(warnings.filters));"
                "print([type(f).__name__ + str(f.get_figwidth()) for f in figures], 'matplotlib.pyplot' in sys.modules)")
        done = subprocess.run([sys.executable, "-c", code, str(SCRIPTS)], cwd=self.root, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "['Figure10.0', 'Figure3.25'] False\n")

    def test_a_figure_for_a_paper(self):
        runs = self.make("pre"), self.make("post", model__norm_placement="post")
        for kind, width, inches in (("heatmap", "3.25", 3.25), ("heads", "page", 5.5)):
            with self.subTest(kind, width=width):
                done = self.call("plot.py", kind, *runs, "--paper", width, "-o", "paper")
                self.assertEqual((done.returncode, done.stdout), (0, "wrote paper.pdf\n"), done.stderr)
                pdf = (self.root / "paper.pdf").read_bytes()
                box = [float(x) for x in re.search(rb"/MediaBox \[ ?([\d. ]+)\]", pdf)[1].split()]
                self.assertAlmostEqual(box[2] / 72, inches, 3)
                self.assertIn(b"/Subtype /TrueType" if b"/Subtype /TrueType" in pdf else b"/CIDFontType2", pdf)
                self.assertNotIn(b"/Type3", pdf)
        figure = plot_layers.plot(layout.styled(group_by_config([Run(run) for run in runs])), paper=5.5)
        sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text()}
        self.assertEqual(min(sizes), 8)

    def test_updates_are_those_of_the_log(self):
        run = self.make("run")
        names = ["blocks.0.attn.q.weight", "blocks.0.attn.out.weight", "blocks.0.attn.out.bias",
                 "blocks.0.ffn_norm.weight", "embed.token.weight", "head.weight"]
        rows = [f"7,{layer},{name},{numel},2,{update}" for name, layer, numel, update in
                zip(names, (1, 1, 1, 1, 0, 4), (30, 10, 5, 5, 8, 8), (0.1, 0.5, 0.02, 0.04, 0.2, 9))]
        (run / "params.csv").write_text("\n".join(["step,layer,param,numel,rms,update_rms", *rows]) + "\n")
        updates = plot_updates.Updates(Run(run))
        drawn = [getattr(updates, role)[0, :2] for role in plot_updates.ROLES]
        np.testing.assert_allclose(drawn, [[0.1, np.sqrt((30 * 0.01 + 10 * 0.25) / 40) / 2], [0.1, np.nan],
                                           [0.1, np.sqrt(0.001) / 2]])
        self.refused("plot.py", "updates", self.make("p", steps=(0,), probe=True), says="p: a probe does not train")

    def test_loss_against_tokens_and_seconds(self):
        """Seeds are drawn as the mean of their seconds and of their losses at each step."""
        for seed, pace, rows, more in ((1, 0.5, (1, 2, 3, 4), 0), (2, 1.5, (1, 2, 3), 0.1), (3, 1, (1, 2, 3), 0.5)):
            lines = [f"{step},{80 * step},{pace * step},{4 - step / 2 + more},{3 + more if step == 2 else ''},100"
                     for step in rows]
            (self.make(f"s{seed}", train__seed=seed) / "metrics.csv").write_text(
                "\n".join(["step,tokens,seconds,train_loss,val_loss,step_ms", *lines]) + "\n")
        for x, expected, validation in (("step", [1, 2, 3, 4], 2), ("tokens", [80, 160, 240, 320], 160),
                                        ("seconds", [1, 2, 3, 3], 2)):
            axes = plot.loss(self.root / "s1", self.root / "s2", self.root / "s3", x=x).axes[0]
            line = next(line for line in axes.lines if line.get_linestyle() == "-")
            np.testing.assert_allclose([line.get_xdata(), line.get_ydata()], [expected, [3.7, 3.2, 2.7, 2]])
            ((marks, _, (bars,)),) = axes.containers
            np.testing.assert_allclose([*marks.get_xydata(), *bars.get_segments()[0]],
                                       [[validation, height] for height in (3.2, 3, 3.5)])
            self.assertEqual(axes.get_xlabel(), plot_loss.AXES[x])
        (self.root / "s2" / "metrics.csv").write_text("step,tokens,train_loss,val_loss\n1,80,3,\n")
        self.refused("plot.py", "loss", "s1", "s2", "--x", "seconds", says="s2: metrics.csv has no column seconds")

    def test_final_losses_against_a_key(self):
        """A line a placement, whose points are the mean of seeds and their range; a cross for each diverged run."""
        for placement, rate, seed, loss in (("pre", 0.1, 1, 2), ("pre", 0.1, 2, 3), ("pre", 0.01, 1, 4),
                                            ("post", 0.1, 1, 5), ("post", 0.01, 1, None), ("post", 0.001, 1, None)):
            run = self.make(f"r/{placement}-{rate}-{seed}", model__norm_placement=placement, train__lr=rate,
                            train__seed=seed, diverged=loss is None)
            summary = json.loads((run / "summary.json").read_text()) | ({"final_val_loss": loss} if loss else {})
            (run / "summary.json").write_text(json.dumps(summary))
        (axes,) = plot.final(self.root / "r").axes
        self.assertEqual((axes.get_xlabel(), axes.get_xscale(), axes.get_xticks().tolist()),
                         ("train.lr", "log", [0.001, 0.01, 0.1]))
        lines = [line.get_xydata().tolist() for line in axes.lines
                 if line.get_linestyle() != "None" and line.get_transform() == axes.transData]
        np.testing.assert_equal(lines, [[[0.01, 4], [0.1, 2.5]], [[0.001, np.nan], [0.01, np.nan], [0.1, 5]]])
        bars = [path.vertices[:, 1].tolist() for bars in axes.collections for path in bars.get_paths()]
        self.assertEqual(bars, [[4, 4], [2, 3], [5, 5]])
        crosses = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "X"]
        self.assertEqual(crosses, [0.001, 0.01])
        self.assertEqual(plot_final.numeric_keys(group_by_config(find_runs([self.root / "r"], ""))),
                         ["train.lr"])
        self.refused("plot.py", "final", "r", "--x", "train.steps",
                     says="--x: no two runs differ in train.steps alone; they differ in model.norm_placement, tr")

    def test_panels_are_those_of_the_logs(self):
        """Every value of every picture of curves is that of made_runs.py, at its step and block."""
        groups = layout.styled(group_by_config([Run(self.make(f"s{seed}", train__seed=seed)) for seed in (1, 3)]))
        expected = (
            (plot_layers.LAYERS, [lambda step, layer: 1.2e-3, lambda step, layer: 1 + layer]),
            (plot_cosine.COSINE, [lambda step, layer: 1 - 1 / (1 + layer * step)]),
            (plot_cosine.APART, [lambda step, layer: 1 / (1 + layer * step)]),
            (plot_branches.BRANCHES, [lambda step, layer: 0.25, lambda step, layer: layer / 2 / (1 + layer)]),
            (plot_heads.HEADS, [lambda step, layer: 1.5, lambda step, layer: 0.1 * layer,
                                lambda step, layer: 0.5 - 1 / layer]),
            (plot_updates.UPDATES, [lambda step, layer: 1e-3 * (1 + layer) / 2] * 3),
            (plot_steps.STEPS, [lambda step, layer: 2, lambda step, layer: 0.5]))
        for picture, values in expected:
            for panel in curves.panels_of(picture, groups, [30]):
                value = values[list(picture.measures).index(panel.measure)]
                for curve in panel.curves:
                    block = 1 if panel.measure.blocks[:1] == (1,) and not curve.is_thin else 3
                    begin = 0 if panel.by_step else picture.first
                    places = [(x, block) if panel.by_step else (30, x) for x in curve.x[begin:]]
                    with self.subTest(panel.title):
                        np.testing.assert_allclose(panels.band(curve.rows)[0][begin:], [value(*at) for at in places])

    def test_options_of_curves(self):
        runs = [self.make("run"), self.make("lost", diverged=True, model__norm="rmsnorm")]
        self.assertEqual([axes.get_title(loc="left") for axes in plot.cosine(*runs).axes],
                         ["Cosine by depth, at step 1", "Cosine by depth, last step of each (50–60)",
                          "Cosine during training, block 1 and block 3"])
        later = plot.layers(runs[0], step=[10, 20], last=20, ylim=(1e-4, 8)).axes
        self.assertEqual([axes.get_title(loc="left")[-10:] for axes in later[1:3]], ["at step 10", "at step 20"])
        self.assertEqual((later[0].get_ylim(), later[4].lines[0].get_xdata().tolist()), ((1e-4, 8), [50, 60]))
        self.refused("plot.py", "heads", "run", "--step", "33", says="no row of step 33 in heads.csv; nearest: 30 and")
        self.refused("plot.py", "loss", "run", "--ylim", "3,2", says="--ylim: got 3,2; expected LOW,HIGH with LOW < H")
        column = plot.cosine(runs[0], paper=3.25)  # without a fourth panel's room
        self.assertLess(column.axes[-1].get_position().y0 * column.get_figheight(), 0.6)

    def test_theory_draws_groups_that_are_alike_once(self):
        groups = layout.styled(group_by_config([Run(self.make(f"{rate}", train__lr=rate)) for rate in (0.1, 0.2)]))
        kept, notes = plot_layers.unlike(groups, [1, 30])
        self.assertEqual(([group.label for group in kept], notes),
                         (["lr 0.1"], ["Alike here, and drawn once: lr 0.1, lr 0.2."]))

    def test_theory_of_seeds_at_two_steps_in_a_paper(self):
        folders = [self.make(f"{norm}-{seed}", decay=decay, model__norm=norm, train__seed=seed)
                   for norm, decay in (("layernorm", 1), ("rmsnorm", 0.5)) for seed in (1, 2)]
        figure = plot.layers(*folders, theory=True, step=[1, 10], paper=3.25)
        self.assertEqual(len(figure.axes), 4)
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()][-2:],
                         ["geometric mean and range of 2 seeds", "theory, before any training"])

    def test_levels_hold_for_runs_of_one_text_and_split(self):
        live = {"vocab": 9, "corpus_hash": "0123456789abcdef"}
        done = Run("done", CONFIG, live | NGRAMS)
        split = merged(CONFIG, {"data": {"val_fraction": 0.2}})
        for config, summary, levels in ((CONFIG, live, done.summary), (CONFIG, {}, {}), (split, live, {})):
            for runs in ([done, Run("other", config, summary)], [Run("other", config, summary), done]):
                self.assertEqual(plot_loss.common_levels(runs).get("unigram"), levels.get("unigram"))

    def test_bands_of_heads_and_uniform_levels(self):
        groups = layout.styled(group_by_config([Run(self.make("a"))]))
        (*_, logits, _) = curves.panels_of(plot_heads.HEADS, groups, [None])
        np.testing.assert_allclose([*np.nanquantile(logits.curves[0].rows, [0, 1])], [-1, 2 / 3])
        uniform = [axes.lines[1].get_ydata()[0] for axes in plot.heads(self.root / "a").axes[:4:2]]
        np.testing.assert_allclose(uniform, [np.log(40320) / 8, sum(1 / t for t in range(1, 9)) / 8])  # context 8


class Ticks(unittest.TestCase):
    def test_blocks_are_ticked_evenly_and_few(self):
        for deepest in (1, 7, 11, 12, 24, 97, 1024):
            ticks = panels.block_ticks(deepest)
            self.assertLessEqual(len(ticks), 10)
            self.assertLessEqual(len(set(np.diff(ticks))), 1, deepest)
        self.assertEqual([panels.block_ticks(deepest)[-1] for deepest in (12, 24)], [12, 24])


if __name__ == "__main__":
    unittest.main()
