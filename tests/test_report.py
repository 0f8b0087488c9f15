#!/usr/bin/python3
"""The HTML report: what it says, that it needs nothing but itself, and that no text of a run becomes markup."""

import base64
import hashlib
import html
import json
import math
import os
import re
import subprocess
import sys
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

from cli import CliTest
from made_runs import SCRIPTS, MadeRuns

import report
from lib import report_data
from lib.comparison import comparison
from lib.runs import Run, find_runs, np

VOID = {"meta", "img", "br", "input"}
SVG = set("svg g path defs clippath rect use line text image tspan pattern".split())
KNOWN = SVG | set("html head meta title style script body header main section h1 h2 h3 p div span ul li table thead tbody tr th td "
                  "figure figcaption pre code br details summary fieldset label select option input button output".split())
PICTURES = ["Loss", "Gradient norm and clipping", "Gradient and activation by layer",
            "Before training, beside theory", "Every layer at every step", "Branch beside stream", "Attention heads"]


class Page(HTMLParser):
    """A page read: `tags` with attributes, `headings`, `tables` (rows of cells' texts), `pre` texts, `notes`, `images` (what
    each still picture is of, and its attributes), and what its scripts and its style hold."""

    def __init__(self, content):
        super().__init__()
        self.content, self.tags, self.open = content, [], []
        self.headings, self.tables, self.pre, self.notes, self.images = [], [], [], [], []
        self.summaries, self.scripts, self.style = [""], [], []
        self.feed(content)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        for name, found in self.texts():
            if tag == name:
                found.append("")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag == "p" and attributes.get("class") == "note":
            self.notes.append("")
        elif tag == "svg" and "aria-label" in attributes:
            self.images.append((self.summaries[-1], attributes))

    def texts(self):
        return (("h2", self.headings), ("pre", self.pre), ("summary", self.summaries), ("script", self.scripts), ("style", self.style))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        for name, found in self.texts():
            if name in self.open:
                found[-1] += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        elif self.notes and self.open[-1:] == ["p"] and self.tags[-1][1].get("class") == "note":
            self.notes[-1] += data


class Report(MadeRuns):
    def report(self, *runs, out="report.html"):
        """The page about the runs, checked for what every page must be."""
        done = self.call("report.py", *runs, "-o", self.root / out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"{out}\n", done.stdout)
        page = Page((self.root / out).read_text(encoding="utf-8"))
        self.assertTrue(page.content.startswith('<!DOCTYPE html>\n<html lang="en">'))
        self.check(page)
        controls = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
        self.assertIsNone(re.search(controls, page.content))
        return page

    def check(self, page):
        """Nothing is fetched or run but the page's own script; no attribute is style, which the policy forbids."""
        self.assertLessEqual({tag for tag, _ in page.tags}, KNOWN)
        for tag, attributes in page.tags:
            self.assertFalse([name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")])
            self.assertRegex(attributes.get("href", "#"), "^data:image/png;base64," if tag == "image" else "^#")
        (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
        digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (page.style[0], page.scripts[1])]
        self.assertEqual(policy, f"default-src 'none'; img-src data:; style-src 'sha256-{digests[0]}'; script-src "
                         f"'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'")
        self.assertEqual((len(page.style), len(page.scripts)), (1, 2))
        self.assertEqual(page.scripts[1], "".join((SCRIPTS / "lib" / "page" / name).read_text(encoding="utf-8")
                                                  for name in ("charts.js", "page.js")))
        self.data = json.loads(page.scripts[0])

        return page

    def test_a_pair(self):
        pre, post = self.make("pre"), self.make("post", model__norm_placement="post", name="other", log__every=5)
        (pre / "sample.txt").write_text("\nfirst line is empty & that stays\n\tTom\n", encoding="utf-8")
        page = self.report(pre, post)
        self.assertEqual(page.headings, ["Layers and loss, step by step", "What was compared", "Results", "Pictures", "Samples",
                                         "Machine and build", "Configs"])
        self.assertEqual([title for title, _ in page.images], PICTURES)
        self.assertIn("<title>normscope: pre and post</title>", page.content)
        self.assertEqual(page.tables[0], [["run", "model.norm_placement", "seed", "folder"],
                                          ["pre", '"pre"', "1", str(pre)], ["post", '"post"', "1", str(post)]])
        self.assertIn("<li>post against pre: model.norm_placement</li>", page.content)
        self.assertEqual(page.pre[0], "\n\nfirst line is empty & that stays\n\tTom\n")  # browsers drop the first one
        self.assertEqual([json.loads(config)["name"] for config in page.pre[1:]], ["fake", "other"])
        self.assertEqual(page.notes, ["post: no sample.txt; it is written when a run is done"])
        self.assertIn("one seed a config", page.content)
        self.assertEqual([(g["label"], g["seeds"]) for g in self.data["groups"]], [("pre", 1), ("post", 1)])
        self.assertLess(len(page.content), 440_000)

    def test_the_same_bytes_every_time(self):
        runs = [self.make("a"), self.make("b", model__norm="rmsnorm", diverged=True)]
        self.assertEqual(self.report(*runs).content, self.report(*runs, out="again.html").content)

    def test_no_text_of_a_run_becomes_markup(self):
        evil = "<script>alert(1)</script><img src=http://x.example/y onerror=alert(2)>\"'&amp;</pre></title>"
        run = self.make("a<b>&\"'", name=evil.replace("/", ""), data__path="/nowhere/" + evil)
        hostile = evil + "\x1b[31m\x00\x07\u202egnp.exe\u2028\x85\r"
        (run / "sample.txt").write_bytes(hostile.encode() + b"\xff\xfe\n")
        summary = {"status": evil, "isa": evil, "cpu": evil, "blas": {"kernel": evil, "version": ["<b>"]}, "version": evil,
                   "final_val_loss": evil, "params": evil, "growth": True, "tokens_per_s": None}
        (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        done = self.call("report.py", run, self.make("other"), "-o", "evil.html")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        content = (self.root / "evil.html").read_text(encoding="utf-8")
        page = Page(content)
        self.check(page)
        self.assertEqual(len(page.images), len(PICTURES) - 1)
        self.assertTrue(page.pre[0].startswith("\n" + evil + r"\x1b[31m\x00\x07\u202egnp.exe\u2028\x85\x0d"))
        self.assertIn("\ufffd", page.pre[0])
        self.assertEqual(json.loads(page.pre[1])["data"]["path"], "/nowhere/" + evil)
        self.assertIn(evil, page.tables[1][1])  # its status, as text

    def test_diverged_unfinished_and_probe(self):
        lost = self.make("lost", diverged=True, train__lr=9.0)
        fresh = self.make("fresh", train__lr=2.0)
        for name in ("summary.json", "metrics.csv", "layers.csv", "heads.csv"):
            (fresh / name).unlink()
        (fresh / "metrics.csv").write_text("step,tokens,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms\n")
        for seed in (1, 2):
            self.make(f"p/seed-{seed}", steps=(0,), probe=True, train__seed=seed)
        page = self.report(lost, fresh, "p")
        states = {row[0]: row[1] for row in page.tables[1][1:]}
        self.assertEqual(states, {"60 steps · lr 9": "diverged", "60 steps · lr 2": "unfinished", "0 steps · lr 0.001": "probe"})
        self.assertIn("<li>60 steps · lr 9: diverged at step 60; block 1 stream became non-finite; nothing had grown since step 1</li>", page.content)
        self.assertIn(f"Left out: {fresh}: metrics.csv has no rows yet", page.notes)
        self.assertIn("Left out: p/seed-1, p/seed-2: a probe does not train", page.notes)
        self.assertIn(f"Left out: {fresh}: no layers.csv; set log.layers_every above 0 and train again", page.notes)
        self.assertIn("Left out: p/seed-1, p/seed-2: one step is logged, a map needs two", page.notes)
        self.assertEqual([title for title, _ in page.images], PICTURES)
        page = self.report("p")
        self.assertEqual([title for title, _ in page.images], [PICTURES[2], PICTURES[3], *PICTURES[5:]])
        self.assertEqual(page.headings[1], "The run")

    def test_numbers_of_a_page_are_those_of_the_logs_to_three_digits(self):
        values = np.array([1.0, 0.1, 9.995, 0.12349, 123456.0, 3.4e38, 1e-30, 1e-36, 0.0, -2.5, np.nan, np.inf, 1 / 3])
        codes = np.frombuffer(base64.b64decode(report_data.packed(values)), "<u2").astype(int)
        shown = [[math.nan, 0.0, math.inf][code] if code < 3 else float(f"{100 + (code - 3) % 900}e{(code - 3) // 900 - 35}")
                 for code in codes]
        self.assertEqual([f"{v:.3g}" for v in shown], ["1", "0.1", "9.99", "0.123", "1.23e+05", "3.4e+38", "1e-30", "0", "0", "2.5",
                                                       "nan", "inf", "0.333"])

    def test_a_long_run_is_thinned(self):
        run = self.make("long", steps=(1, *range(10, 40_000, 10)), model__n_layer=2)
        page = self.report(run, self.make("other", model__norm="rmsnorm"))
        (data, _), steps = self.data["runs"], self.data["runs"][0]["steps"]
        self.assertEqual((steps[0], steps[-1]), (1, 39_990))
        self.assertLess(2 * len(steps) * data["layers"] * len(data["sites"]), 20_001)
        self.assertEqual(len(data["train"]), 300)
        self.assertLess(len(page.content), 400_000)

    def test_a_resumed_run_is_unfinished_while_its_rows_are_newer_than_its_summary(self):
        run = self.make("run")
        self.assertFalse(report.unfinished(Run(run)))
        later = time.time() + 5
        os.utime(run / "metrics.csv", (later, later))
        self.assertTrue(report.unfinished(Run(run)))

    def test_watching_rewrites_the_page_until_the_run_has_ended(self):
        run, page = self.make("run"), self.root / "live.html"
        summary = (run / "summary.json").read_text()
        (run / "summary.json").unlink()
        often = (f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import report\n"
                 "report.watched.__defaults__ = (0.1, 3)  # seconds between looks; patience\nreport.main(report.run)")
        watching = subprocess.Popen([sys.executable, "-c", often, "--watch", str(run), "-o", str(page)], cwd=self.root,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watching.kill)

        def wait_for(condition):
            end = time.monotonic() + 60
            while not (page.exists() and condition(page.read_text(encoding="utf-8"))):
                self.assertIsNone(watching.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.1)

        wait_for(lambda content: 'http-equiv="refresh"' in content and '"steps":[1,10,20,30,40,50,60]' in content)
        with open(run / "layers.csv", "a", encoding="utf-8") as rows:
            rows.write("70,0,stream,0,1,1,0,1,1,1,0\n")
        wait_for(lambda content: '"steps":[1,10,20,30,40,50,60,70]' in content)
        (run / "summary.json").write_text(summary)
        wait_for(lambda content: 'http-equiv="refresh"' not in content)
        out, errors = watching.communicate(timeout=60)
        self.assertEqual((watching.returncode, errors), (0, ""))
        self.assertGreaterEqual(out.count("wrote "), 3)

    def test_base(self):
        runs = self.make("a"), self.make("b", model__norm="rmsnorm")
        self.assertIn("<li>rmsnorm against layernorm: ", self.report(*runs).content)
        done = self.call("report.py", *runs, "--base", "rmsnorm")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("<li>layernorm against rmsnorm: ", (self.root / "report.html").read_text(encoding="utf-8"))
        self.refused("report.py", *runs, "--base", "nobody", says="--base: got nobody; expected ")

    def test_default_name_and_errors(self):
        run = self.make("runs/a")
        self.assertEqual(self.call("report.py", run).stdout, "wrote runs/a/report.html\n")
        self.assertTrue((run / "report.html").is_file())
        self.refused("report.py", run, "-o", "x.png", says=r"-o x\.png: .* name ending in \.html or \.htm")
        self.refused("report.py", "nowhere", says="nowhere: no such folder")
        self.refused("report.py", run, "-o", "/dev/null", says=r"-o /dev/null: is no file")
        (run / "summary.json").write_text("{")
        self.refused("report.py", run, says="a: damaged summary.json")


class Figures(CliTest):
    """What the page says of real runs: that which compare.py says."""

    def test_figures_and_sentences_are_those_of_compare(self):
        small = {"init": {"std": 0.001}}
        for seed in (1, 2, 3):
            self.train(f"runs/pre-{seed}", {"model": small, "train": {"seed": seed}})
            self.train(f"runs/post-{seed}", {"model": {**small, "norm_placement": "post"}, "train": {"seed": seed}})
        said = comparison(find_runs([self.path("runs")], "config.json"))
        content = report.report(find_runs([self.path("runs")], "config.json"))
        page = Page(content)
        for run, shown in zip(said["runs"], page.tables[1][1:], strict=True):
            self.assertEqual(shown, [run["label"], "done", f"{run['params']:,}",
                                     *(figure["text"] for figure in run["figures"].values())])
        (pair,) = said["paired"]
        self.assertEqual(page.tables[2][1:], [[pair[key] for key in ("group", "difference", "text")]])
        self.assertEqual({remark["kind"] for remark in said["remarks"]}, {"differs", "small_branch"})
        for remark in said["remarks"]:
            self.assertIn(f"<li>{html.escape(remark['text'])}</li>", content)
        self.assertEqual(content.count("<li>"), len(said["remarks"]))

    def test_a_report_of_real_runs(self):
        self.train("runs/pre")
        self.normscope("probe", self.config(), "--seeds", "2", "--out", "runs/probe")
        content = report.report(find_runs([self.path("runs")], "config.json"))
        page = Page(content)
        self.assertEqual([title for title, _ in page.images], PICTURES)
        self.assertIn(Path(self.path("runs/pre/sample.txt")).read_text(encoding="utf-8"), page.pre[0])
        self.assertIn("trajectory_hash", page.tables[2][0])
        self.assertIn("probe", page.tables[1][1][1] + page.tables[1][2][1])


if __name__ == "__main__":
    unittest.main()
