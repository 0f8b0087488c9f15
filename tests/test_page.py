#!/usr/bin/python3
"""The report in a browser: its slider, switches, values and keys, that nothing is fetched or complained of, and the pictures
of a browser without scripts. Skipped without Chromium, which users need not have."""

import csv
import os
import shutil
import sys
import tempfile
import time
import unittest
from pathlib import Path

from browser import CHROMIUM, Browser
from cli import CliTest, Run

if CHROMIUM is None:
    print("skipped: no chromium here; scripts/install_packages.sh chromium installs it")
    sys.exit(77)

import report  # after cli, which tells where scripts are
from lib.runs import find_runs

CURVES = "document.querySelectorAll('#{} .curve')"


class InABrowser(CliTest):
    made, content = None, None  # by the first test: a folder that holds the others' runs, and their page

    def setUp(self):
        super().setUp()
        if self.made is None:
            for placement in ("pre", "post"):
                for seed in (1, 2):
                    changes = {"model": {"n_layer": 3, "norm_placement": placement}, "train": {"seed": seed}, "log": {"layers_every": 5}}
                    self.train(f"runs/{placement}-{seed}", changes)
            InABrowser.content = self.page_of("runs")
            InABrowser.made = tempfile.TemporaryDirectory(prefix="normscope-test-")
            self.addClassCleanup(self.made.cleanup)
            shutil.copytree(self.path("runs"), os.path.join(self.made.name, "runs"))
        else:
            shutil.copytree(os.path.join(self.made.name, "runs"), self.path("runs"))
        self.page = Path(self.write("page.html", self.content))

    def page_of(self, folder):
        return report.report(find_runs([self.path(folder)], "config.json"))

    def logged(self, run, step, layer, column, site="stream"):
        with open(self.path("runs", run, "layers.csv"), encoding="utf-8", newline="") as file:
            (value,) = [float(row[column]) for row in csv.DictReader(file)
                        if (row["step"], row["layer"], row["site"]) == (str(step), str(layer), site)]
        return value

    def tip(self, browser):
        """{name: value} of what stands beside the pointer, and its title."""
        rows = browser.evaluate("[...document.querySelectorAll('#tip tr')].map(r => [...r.cells].map(c => c.textContent))")
        return dict(rows), browser.evaluate("document.querySelector('#tip div').textContent")

    def silent(self, browser, page=None):
        self.assertEqual(browser.messages, [])
        asked = [address.split("#")[0] for address in browser.requests if not address.startswith("data:")]
        self.assertEqual(set(asked), {(page or self.page).as_uri()})

    def test_the_slider_moves_every_picture(self):
        with Browser() as browser:
            browser.open(self.page)
            self.assertEqual(browser.evaluate("now.textContent"), "step 1")
            browser.evaluate("document.getElementById('step').focus()")
            browser.key("End")
            before = browser.evaluate(f"{CURVES.format('grad')}[0].getAttribute('points')")
            cursor = browser.evaluate("document.querySelector('#loss .cursor').getAttribute('x1')")
            browser.evaluate("document.getElementById('step').focus()")
            browser.key("ArrowLeft")
            self.assertEqual(browser.evaluate("now.textContent"), "step 20")
            self.assertNotEqual(browser.evaluate(f"{CURVES.format('grad')}[0].getAttribute('points')"), before)
            self.assertLess(float(browser.evaluate("document.querySelector('#loss .cursor').getAttribute('x1')")), float(cursor))
            browser.point("#loss svg", across=0.42, press=True)  # a click goes to the nearest logged step
            self.assertEqual(browser.evaluate("now.textContent"), "step 10")
            self.silent(browser)

    def test_values_are_those_of_the_logs(self):
        with Browser() as browser:
            browser.open(self.page)
            browser.evaluate("document.getElementById('step').focus()")
            browser.key("End")
            browser.evaluate("document.querySelector('#grad svg').focus()")
            for _ in range(2):
                browser.key("ArrowRight")
            values, title = self.tip(browser)
            self.assertEqual(title, "block 1, step 25")
            for placement in ("pre", "post"):
                mean = sum(self.logged(f"{placement}-{seed}", 25, 1, "grad_rms") for seed in (1, 2)) / 2
                self.assertLess(abs(float(values[placement]) / mean - 1), 0.011)
            browser.choose("#seeds", "lines")
            browser.choose("#site", "ffn_out")
            browser.choose("#unit", "ratio")
            browser.evaluate("document.querySelector('#rms svg').focus()")
            for _ in range(4):
                browser.key("ArrowRight")
            values, title = self.tip(browser)
            self.assertEqual((title, len(values)), ("block 3, step 25", 4))
            for name, run in (("pre seed 1", "pre-1"), ("post seed 2", "post-2")):
                ratio = self.logged(run, 25, 3, "rms", "ffn_out") / self.logged(run, 1, 3, "rms", "ffn_out")
                self.assertLess(abs(float(values[name]) / ratio - 1), 0.012)
            browser.key("Escape")
            self.assertTrue(browser.evaluate("document.getElementById('tip').hidden"))
            browser.point("#loss svg", 0.99)
            rows = self.tip(browser)[0]
            loss = Run(self.path("runs/pre-1")).rows("metrics.csv")[-1]
            self.assertAlmostEqual(float(rows["pre seed 1"]), float(loss["train_loss"]), delta=0.006)
            self.assertAlmostEqual(float(rows["pre seed 1 (validation)"]), float(loss["val_loss"]), delta=0.006)
            self.silent(browser)

    def test_switches(self):
        with Browser() as browser:
            browser.open(self.page)
            count = f"{CURVES.format('grad')}.length"
            self.assertEqual(browser.evaluate(count), 2)
            browser.point("#runs label:nth-child(2) input", press=True)
            self.assertEqual(browser.evaluate(count), 1)
            browser.point("#runs label:nth-child(2) input", press=True)
            browser.choose("#seeds", "lines")
            self.assertEqual(browser.evaluate(count), 4)
            browser.point("#runs label:nth-child(4) input", press=True)  # seed 2
            self.assertEqual(browser.evaluate(count), 2)
            browser.choose("#show", "rms")
            self.assertEqual(browser.evaluate("[grad.hidden, rms.hidden]"), [True, False])
            log = browser.evaluate(f"{CURVES.format('rms')}[0].getAttribute('points')")
            browser.choose("#scale", "linear")
            self.assertNotEqual(browser.evaluate(f"{CURVES.format('rms')}[0].getAttribute('points')"), log)
            for label in range(1, 5):  # everything off is no error
                browser.evaluate(f"runs.querySelectorAll('input')[{label - 1}].checked && runs.querySelectorAll('input')[{label - 1}].click()")
            browser.settle()
            self.assertEqual(browser.evaluate(f"{CURVES.format('rms')}.length"), 0)
            self.silent(browser)

    def test_it_plays(self):
        with Browser() as browser:
            browser.open(self.page)
            browser.evaluate("document.activeElement.blur()")
            browser.key(" ", " ")
            self.assertEqual(browser.evaluate("document.getElementById('play').textContent"),
                             "❚❚ pause")
            browser.wait("now.textContent === 'step 15'")
            browser.wait("document.getElementById('play').textContent === '▶ play'")
            self.assertEqual(browser.evaluate("now.textContent"), "step 25")
            time.sleep(0.7)  # the address is written
            self.assertIn("step=25", browser.evaluate("location.hash"))
            self.silent(browser)

    def test_on_a_phone_and_in_the_dark_nothing_is_wider_than_the_screen(self):
        with Browser() as browser, tempfile.TemporaryDirectory() as folder:
            for width in (1200, 400):
                for dark in (False, True):
                    browser.open(self.page, width, dark=dark)
                    self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), width)
                    colors = browser.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
                    self.assertEqual(colors[0] == "rgb(23, 24, 26)", dark)
                    picture = Path(folder, "page.png")
                    browser.screenshot(picture)
                    self.assertGreater(picture.stat().st_size, 20_000)
            self.silent(browser)

    def test_without_scripts_the_pictures_stand(self):
        pictures = self.page.read_text(encoding="utf-8").count('<svg role="img" aria-label=')
        self.assertGreater(pictures, 4)
        tall = "[...document.querySelectorAll('details.still svg')].filter(s => s.clientHeight > 200).length"
        with Browser(javascript=False) as browser:
            browser.open(self.page)
            self.assertEqual(browser.evaluate(tall), pictures)
            self.assertEqual(browser.evaluate("document.getElementById('player').clientHeight"), 0)

    def test_what_runs_that_diverged_show_is_said(self):
        caption = "document.querySelector('#grad figcaption').textContent"
        self.train("runs/lost", {"model": {"norm_placement": "none"}, "log": {"layers_every": 1},
                                 "train": {"optimizer": "sgd", "lr": 100, "schedule": "constant", "grad_clip": 0}}, code=3)
        page = Path(self.write("lost.html", self.page_of("runs")))
        with Browser() as browser:
            browser.open(page)
            browser.evaluate("document.getElementById('step').focus()")
            browser.key("End")
            self.assertTrue(browser.evaluate(caption).endswith("by layer; of runs that have diverged: the last step logged"))
            browser.key("Home")
            self.assertTrue(browser.evaluate(caption).endswith("by layer"))
            self.silent(browser, page)

    def test_probes_unfinished_and_hostile_runs(self):
        self.normscope("probe", self.config(), "--seeds", "2", "--out", "runs/probe")
        os.remove(self.path("runs/pre-1/summary.json"))
        os.remove(self.path("runs/post-1/layers.csv"))
        os.rename(self.path("runs/pre-2"), self.path("runs/<script>document.title='x'<"))
        page = Path(self.write("odd.html", self.page_of("runs")))
        with Browser() as browser:
            browser.open(page)
            self.assertTrue(browser.evaluate("document.title").startswith("normscope: "))
            self.assertGreater(browser.evaluate(f"{CURVES.format('grad')}.length"), 1)
            self.silent(browser, page)


if __name__ == "__main__":
    unittest.main()
