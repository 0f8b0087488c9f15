#!/usr/bin/python3
"""The report's script in a browser: slider, play, sites, runs, and the values that it shows; nothing is fetched or
complained of. Skipped without Chromium, which users need not have."""

import contextlib
import html
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from cli import PATIENCE, CliTest, Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    print("skipped: no chromium here; scripts/install_packages.sh chromium installs it")
    sys.exit(77)

import report  # after cli, which tells where scripts are
from lib.page.report_page import policy_hash
from lib.logs.runs import find_runs

LISTEN = """<script>const errors = [];
onerror = (...what) => { errors.push(String(what)); };
document.addEventListener("securitypolicyviolation", event => errors.push(event.blockedURI));</script>"""
READER = """<script>
const act = (id, event, values) => { Object.assign($(id), values); $(id).dispatchEvent(new Event(event)); };
const point = (name, place, event = "pointermove") => {
  const svg = $(name).querySelector("svg"), clientX = svg.getBoundingClientRect().left + charts[name][0].x(place);
  svg.dispatchEvent(new PointerEvent(event, { clientX }));
};
const tip = () => [$("tip").firstChild.textContent, Object.fromEntries([...$("tip").querySelectorAll("tr")].map(row =>
  [row.cells[0].textContent, Number(row.cells[1].textContent)]))];
const curves = name => [...$(name).querySelectorAll(".curve")].map(curve => curve.getAttribute("points"));
const passed = milliseconds => new Promise(done => setTimeout(done, milliseconds));
const opened = [$("play").textContent, $("now").textContent];
(async () => { play(false); %s })().catch(error => { errors.push(String(error)); }).then(value => {
  document.title = JSON.stringify({ value, errors, fetched: performance.getEntriesByType("resource").map(r => r.name).filter(n => !n.startsWith("data:")) });
});</script>"""


class InABrowser(CliTest):
    """Four runs."""

    def setUp(self):
        super().setUp()
        for placement in ("pre", "post"):
            for seed in (1, 2):
                changes = {"model": {"n_layer": 3, "norm_placement": placement}, "train": {"seed": seed},
                           "log": {"layers_every": 5}}
                self.train(f"runs/{placement}-{seed}", changes)

    def returned(self, script, address="", with_pictures=False):
        """The value that the body of a function returns when it is called in the page."""
        with contextlib.nullcontext() if with_pictures else mock.patch.object(report, "pictures", lambda groups: ""):
            content = report.report(find_runs([self.path("runs")], "config.json"))
        reader = READER % script
        for own in (LISTEN, reader):  # the page's policy allows scripts by their hash alone
            hashed = policy_hash(re.search("<script>(.*)</script>", own, re.DOTALL)[1])
            content = content.replace("script-src ", f"script-src '{hashed}' ")
        content = content.replace("<head>", "<head>" + LISTEN).replace("</body>", reader + "</body>")
        page = Path(self.write("page.html", content))
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               "--window-size=500,900", "--virtual-time-budget=20000", "--dump-dom",
                               page.as_uri() + address], capture_output=True,
                              encoding="utf-8", timeout=PATIENCE, check=True)
        result = json.loads(html.unescape(re.search("<title>(.*)</title>", done.stdout)[1]))
        self.assertEqual((result["errors"], result["fetched"]), ([], []))
        return result["value"]

    def mean(self, placement, step, layer, column, site="stream"):
        rows = [row for seed in (1, 2) for row in Run(self.path(f"runs/{placement}-{seed}")).rows("layers.csv")]
        return statistics.geometric_mean(float(row[column]) for row in rows if (row["step"], row["layer"], row["site"]) ==
                                         (str(step), str(layer), site))

    def test_values_are_those_of_the_logs(self):
        end, middle, loss, clicked, address = self.returned("""
            act("step", "input", { value: page.steps.length - 1 }); point("grad", 1); const end = tip();
            act("step", "input", { value: page.steps.indexOf(10) }); act("site", "change", { value: "ffn_out" });
            point("rms", 3); const middle = tip();
            point("loss", 25); const loss = tip(); point("loss", 20, "pointerdown"); await passed(700);
            return [end, middle, loss, $("now").textContent, location.hash];""")
        self.assertEqual((end[0], middle[0], loss[0], clicked),
                         ("block 1, step 25", "block 3, step 10", "step 25", "step 20"))
        for placement in ("pre", "post"):
            self.assertLess(abs(end[1][placement] / self.mean(placement, 25, 1, "grad_rms") - 1), 0.011)
            self.assertLess(abs(middle[1][placement] / self.mean(placement, 10, 3, "rms", "ffn_out") - 1), 0.011)
            last = [Run(self.path(f"runs/{placement}-{seed}")).rows("metrics.csv")[-1] for seed in (1, 2)]
            for what, column in (("", "train_loss"), (" (validation)", "val_loss")):
                mean = sum(float(row[column]) for row in last) / 2
                self.assertAlmostEqual(loss[1][placement + what], mean, delta=0.006)
        self.assertEqual(address, "#step=20&site=ffn_out")

    def test_it_moves_and_plays(self):
        opened, first, later, one, both, played, address, width = self.returned("""
            const first = curves("grad"); act("step", "input", { value: 2 }); const later = curves("grad");
            const box = $("switches").querySelectorAll("input")[1]; box.click(); const one = curves("grad").length;
            box.click(); const both = curves("loss").length;
            $("play").click(); const began = [$("play").textContent, $("now").textContent]; await passed(9000);
            return [opened, first, later, one, both, [...began, $("play").textContent, $("now").textContent], location.hash,
                    document.documentElement.scrollWidth - innerWidth];""")
        self.assertNotEqual(first, later)
        self.assertEqual((len(first), one, both), (2, 1, 2))
        self.assertEqual(opened, ["❚❚ pause", "step 1"])
        self.assertEqual(played, ["❚❚ pause", "step 3", "▶ play", "step 25"])
        self.assertEqual(address, "#step=25&site=stream")
        self.assertLessEqual(width, 0)
        self.assertEqual(self.returned('return [$("now").textContent, $("site").value];', "#step=12&site=ffn_in"),
                         ["step 10", "ffn_in"])

    def test_diverged_probes_unfinished_and_hostile_runs(self):
        self.train("runs/lost", {"model": {"norm_placement": "none"}, "log": {"layers_every": 1},
                                 "train": {"optimizer": "sgd", "lr": 100, "schedule": "constant",
                                           "grad_clip": 0}}, code=3)
        self.normscope("probe", self.config(), "--seeds", "2", "--out", "runs/probe")
        os.remove(self.path("runs/pre-1/summary.json"))
        os.remove(self.path("runs/post-1/layers.csv"))
        os.rename(self.path("runs/pre-2"), self.path("runs/<script>document.title='x'<"))
        metrics = Path(self.path("runs/post-2/metrics.csv"))
        header, first, *rest = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        cells = dict(zip(header.strip().split(","), first.strip().split(","))) | {"train_loss": "3.14159e12"}
        metrics.write_text("".join([header, ",".join(cells.values()) + "\n", *rest]), encoding="utf-8")
        count, marks, none = self.returned("""act("step", "input", { value: page.steps.length - 1 });
            page.groups.find(group => group.losses).losses.val[2][0] = 2.71828e9;
            redraw();
            markBeyond(charts.loss[0], [1, 2], [[null, -1]], page.groups[0]);
            const before = [curves("grad").length, [...$("loss").querySelectorAll(".outside")].map(mark => mark.textContent)];
            $("switches").querySelectorAll("button")[1].click(); return [...before, curves("grad").length];""",
            with_pictures=True)
        self.assertGreater(count, 1)
        self.assertLessEqual({"▲ 3.14e12", "▲ 2.72e9", "▼ -1"}, {*marks})
        self.assertEqual(none, 0)


if __name__ == "__main__":
    unittest.main()
