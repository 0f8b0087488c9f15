#!/usr/bin/python3
"""The HTML report: what it says, that it needs nothing but itself, and that no text of a run becomes markup."""

import base64
import html
import json
import os
import re
import unittest
from html.parser import HTMLParser
from pathlib import Path

from cli import CliTest
from made_runs import MadeRuns

import report
from runs import find_runs

VOID = {"meta", "img", "br"}
KNOWN = set("html head meta title style body header main section h1 h2 h3 p div span ul li table thead tbody tr th td "
            "figure figcaption img pre code br details summary".split())
PICTURES = ["Loss", "Gradient and activation by layer", "Every layer at every step", "Branch beside stream"]


class Page(HTMLParser):
    """A page read: `tags` with attributes, `headings`, `tables` (rows of cells' texts), `pre` texts, `notes`."""

    def __init__(self, content):
        super().__init__()
        self.content, self.tags, self.open = content, [], []
        self.headings, self.tables, self.pre, self.notes, self.images = [], [], [], [], []
        self.feed(content)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        for name, found in (("h2", self.headings), ("pre", self.pre)):
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
        elif tag == "img":
            self.images.append((self.headings[-1], attributes))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        for name, found in (("h2", self.headings), ("pre", self.pre)):
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
        self.assertLessEqual({tag for tag, _ in page.tags}, KNOWN)
        for tag, attributes in page.tags:
            self.assertFalse([name for name in attributes if name.startswith("on") or name in ("href", "srcset")])
            self.assertTrue(attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,"))
        policy = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
        self.assertEqual(policy, ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"])
        self.assertIsNone(re.search(r"url\(|@import|https?:", page.content))
        controls = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
        self.assertIsNone(re.search(controls, page.content))
        for _, image in page.images:
            png = base64.b64decode(image["src"].split(",")[1], validate=True)
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual((image["width"], image["height"]), ("1400", str(int.from_bytes(png[20:24], "big"))))
            self.assertTrue(image["alt"])
        return page

    def test_a_pair(self):
        pre, post = self.make("pre"), self.make("post", model__norm_placement="post", name="other", log__every=5)
        (pre / "sample.txt").write_text("\nfirst line is empty & that stays\n\tTom\n", encoding="utf-8")
        page = self.report(pre, post)
        self.assertEqual(page.headings, ["What was compared", "Results", *PICTURES, "Samples", "Machine and build",
                                         "Configs"])
        self.assertEqual([heading for heading, _ in page.images], PICTURES)
        self.assertIn("<title>normscope: pre and post</title>", page.content)
        self.assertEqual(page.tables[0], [["run", "model.norm_placement", "seed", "folder"],
                                          ["pre", '"pre"', "1", str(pre)], ["post", '"post"', "1", str(post)]])
        self.assertIn("<li>post against pre: model.norm_placement</li>", page.content)
        self.assertEqual(page.pre[0], "\n\nfirst line is empty & that stays\n\tTom\n")  # browsers drop the first one
        self.assertEqual([json.loads(config)["name"] for config in page.pre[1:]], ["fake", "other"])
        self.assertEqual(page.notes, ["post: no sample.txt; it is written when a run is done"])
        self.assertIn("one seed a config", page.content)

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
        self.assertLessEqual({tag for tag, _ in page.tags}, KNOWN)
        self.assertEqual(len(page.images), 4)
        self.assertTrue(all(a["src"].startswith("data:") for _, a in page.images))
        self.assertFalse([a for _, a in page.tags if any(name.startswith("on") for name in a)])
        self.assertTrue(page.pre[0].startswith("\n" + evil + r"\x1b[31m\x00\x07\u202egnp.exe\u2028\x85\x0d"))
        self.assertIn("\ufffd", page.pre[0])
        self.assertEqual(json.loads(page.pre[1])["data"]["path"], "/nowhere/" + evil)
        self.assertIn(evil, page.tables[1][1])  # its status, as text

    def test_diverged_unfinished_and_probe(self):
        lost = self.make("lost", diverged=True, train__lr=9.0)
        fresh = self.make("fresh", train__lr=2.0)
        for name in ("summary.json", "metrics.csv", "layers.csv"):
            (fresh / name).unlink()
        (fresh / "metrics.csv").write_text("step,tokens,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms\n")
        for seed in (1, 2):
            self.make(f"p/seed-{seed}", steps=(0,), probe=True, train__seed=seed)
        page = self.report(lost, fresh, "p")
        states = {row[0]: row[1] for row in page.tables[1][1:]}
        self.assertEqual(states, {"60 steps · lr 9": "diverged", "60 steps · lr 2": "unfinished", "0 steps · lr 0.001": "probe"})
        self.assertIn("<li>60 steps · lr 9: diverged at step 60</li>", page.content)
        self.assertIn(f"Left out: {fresh}: metrics.csv has no rows yet", page.notes)
        self.assertIn("Left out: p/seed-1, p/seed-2: a probe does not train", page.notes)
        self.assertIn(f"Left out: {fresh}: no layers.csv; set log.layers_every above 0 and train again", page.notes)
        self.assertIn("Left out: p/seed-1, p/seed-2: one step is logged, a map needs two", page.notes)
        self.assertEqual([heading for heading, _ in page.images], PICTURES)
        page = self.report("p")
        self.assertEqual([heading for heading, _ in page.images], [PICTURES[1], PICTURES[3]])
        self.assertEqual(page.headings[0], "The run")

    def test_default_name_and_errors(self):
        run = self.make("runs/a")
        self.assertEqual(self.call("report.py", run).stdout, "wrote runs/report.html\n")
        self.assertTrue((self.root / "runs" / "report.html").is_file())
        self.refused("report.py", run, "-o", "x.png", says=r"-o x\.png: .* name ending in \.html or \.htm")
        self.refused("report.py", "nowhere", says="nowhere: no such folder")
        self.refused("report.py", run, "-o", "/dev/null", says=r"-o /dev/null: is no file")
        nowhere = {**os.environ, "NORMSCOPE": "/nowhere/normscope"}
        self.refused("report.py", run, code=1, env=nowhere, says="/nowhere/normscope: No such file or directory; ")
        self.refused("report.py", run, code=1, env={**nowhere, "NORMSCOPE": "/bin/true"}, says="/bin/true compare: no ")
        (run / "summary.json").write_text("{")
        self.refused("report.py", run, says="a: damaged summary.json")

    def test_a_run_that_the_program_cannot_read_is_said(self):
        page = self.report(self.make("a"), self.make("b", model__n_head=3))
        self.assertEqual([row[0] for row in page.tables[0][1:]], ["pre · layernorm"])
        self.assertRegex(page.content, r"<li>\[config\] model\.n_head: 3 does not divide")
        self.refused("report.py", self.root / "b", code=1, says="normscope compare: \\[config\\] model.n_head: 3")


class Figures(CliTest):
    """What the page says of real runs: that which `normscope compare` says."""

    def test_figures_and_sentences_are_those_of_compare(self):
        small = {"init": {"std": 0.001}}
        for seed in (1, 2, 3):
            self.train(f"runs/pre-{seed}", {"model": small, "train": {"seed": seed}})
            self.train(f"runs/post-{seed}", {"model": {**small, "norm_placement": "post"}, "train": {"seed": seed}})
        said = json.loads(self.normscope("compare", "--json", "runs").stdout)
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
        self.assertEqual([heading for heading, _ in page.images], PICTURES)
        self.assertIn(Path(self.path("runs/pre/sample.txt")).read_text(encoding="utf-8"), page.pre[0])
        self.assertIn("trajectory_hash", page.tables[2][0])
        self.assertIn("probe", page.tables[1][1][1] + page.tables[1][2][1])


if __name__ == "__main__":
    unittest.main()
