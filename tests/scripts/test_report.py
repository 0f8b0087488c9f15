#!/usr/bin/python3
"""The HTML report: its content, that it needs nothing but itself, and that no text of a run becomes markup."""

import contextlib
import fcntl
import html
import io
import json
import os
import re
import unittest
from unittest import mock
from xml.etree import ElementTree

from cli import CliTest
from made_runs import SCRIPTS, MadeRuns

import report
from lib.base.command import ScriptError
from lib.compare.comparison import comparison
from lib.compare.tables import parts_of
from lib.figures.kinds import KINDS
from lib.logs.runs import find_runs

PICTURES = [title for kind in KINDS.values() for title, *_ in kind.stills][:-1]  # without final losses


class Page:
    """A page read as XML: its `elements`; `texts`, {element: the texts of each}, with what was left out as "note"; and
    `tables`, rows of cells' texts."""

    def __init__(self, content):
        script = r"(?s)(<script\b[^>]*>)(.*?)(?=</script>)"
        markup = re.sub('(?<=src="data:image/svg[+]xml;)[^"]*', "", re.sub(script, r"\1", content))
        markup = re.sub(r"<((?:meta|img|br|input)\b[^>]*)>", r"<\1/>", markup.removeprefix("<!DOCTYPE html>"))
        self.content, self.elements = content, ElementTree.fromstring(markup)
        self.texts = {tag: self.texts_of(self.elements, tag) for tag in ("h2", "h3", "pre")}
        self.texts["script"] = [text for _, text in re.findall(script, content)]
        for name in ("note", "soft"):
            self.texts[name] = self.texts_of(self.elements, f"p[@class='{name}']")
        self.tables = [[[*self.texts_of(row, "th"), *self.texts_of(row, "td")] for row in table.iter("tr")]
                       for table in self.elements.iter("table")]
        self.images = [image.get("alt").split(": ")[0] for image in self.elements.iter("img")]

    @staticmethod
    def texts_of(element, path):
        return ["".join(found.itertext()) for found in element.iterfind(f".//{path}")]


def without_pictures():
    """Leaves the pictures out of pages, most of whose time they take."""
    return mock.patch.object(report, "pictures", lambda groups: "")


class Report(MadeRuns):
    def report(self, *runs):
        """The page about the runs, of which nothing is fetched, and no handler or script is there but the page's
        own."""
        with contextlib.chdir(self.root):
            page = Page(report.report(find_runs([str(run) for run in runs], "config.json")))
        for element in page.elements.iter():
            self.assertFalse([name for name in element.attrib if name.startswith("on")
                              or name in ("style", "href", "srcset")])
            self.assertRegex(element.get("src", "data:image/svg+xml;"), "^data:image/svg[+]xml;")
        data, script = page.texts["script"]
        self.assertEqual(script, (SCRIPTS / "lib" / "page" / "page.js").read_text(encoding="utf-8"))
        self.data = json.loads(data)
        controls = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
        self.assertIsNone(re.search(controls, page.content))
        return page

    def test_a_pair(self):
        pre, post = self.make("pre"), self.make("post", model__norm_placement="post", name="other", log__every=5)
        (pre / "sample.txt").write_text("\nfirst line is empty & that stays\n\tTom\n", encoding="utf-8")
        page = self.report(pre, post)
        self.assertEqual(page.texts["h2"],
                         ["Layers and loss, step by step", "Results", "Pictures", "Samples", "Configs and machines"])
        self.assertEqual(page.images, PICTURES)
        self.assertEqual([row[:3] for row in page.tables[0]],
                         [["run", "placement", "norm"], ["pre", "pre", "layernorm"],
                          ["post", "post", "layernorm"]])
        # browsers drop the first one
        self.assertEqual(page.texts["pre"][0], "\n\nfirst line is empty & that stays\n\tTom\n")
        self.assertEqual([json.loads(config)["name"] for config in page.texts["pre"][1::2]], ["pre", "other"])
        self.assertEqual(page.texts["note"], ["post: no sample.txt; it is written when a run is done"])
        self.assertLess(len(page.content), 800_000)

    def test_no_text_of_a_run_becomes_markup(self):
        evil = "<script>alert(1)</script><img src=http://x.example/y onerror=alert(2)>\"'&amp;</pre></title>"
        run = self.make("a<b>&\"'", name=evil.replace("/", ""), data__path="/nowhere/" + evil)
        hostile = evil + "\x1b[31m\x00\x07\u202egnp.exe\u2028\x85\r"
        (run / "sample.txt").write_bytes(hostile.encode() + b"\xff\xfe\n")
        summary = {"status": evil, "isa": evil, "cpu": evil, "blas": {"kernel": evil, "version": ["<b>"]},
                   "version": evil, "final_val_loss": evil, "params": evil, "growth": True, "tokens_per_s": None}
        (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        page = self.report(run, self.make("other"))
        self.assertEqual(len(page.images), len(PICTURES) - 1)
        self.assertTrue(page.texts["pre"][0].startswith("\n" + evil + r"\x1b[31m\x00\x07\u202egnp.exe\u2028\x85\x0d"))
        self.assertEqual(json.loads(page.texts["pre"][1])["data"]["path"], "/nowhere/" + evil)
        self.assertIn(evil, page.tables[0][1])  # its status, as text

    def test_diverged_unfinished_and_probe(self):
        lost = self.make("lost", diverged=True, train__lr=9.0)
        fresh = self.make("fresh", train__lr=2.0)
        for name in ("summary.json", "metrics.csv", "layers.csv", "heads.csv"):
            (fresh / name).unlink()
        (fresh / "metrics.csv").write_text("step,tokens,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms\n")
        for seed in (1, 2):
            self.make(f"p/seed-{seed}", steps=(0,), probe=True, train__seed=seed)
        page = self.report(lost, fresh, "p")
        titles, *rows = page.tables[0]
        states = {row[0]: row[titles.index("status")] for row in rows}
        self.assertEqual(states, {"60 steps · lr 9": "diverged", "60 steps · lr 2": "stopped",
                                  "0 steps · lr 0.001": "probe"})
        self.assertIn(
            "<li>60 steps · lr 9: diverged at step 60; block 1 stream became non-finite first; scripts/diagnose.py "
            f"{lost} shows what moved before</li>", page.content)
        for note in (f"{fresh}: metrics.csv has no rows yet", "p/seed-1, p/seed-2: a probe does not train",
                     f"{fresh}: no layers.csv; set log.layers_every above 0 and train again",
                     "p/seed-1, p/seed-2: one step is logged, a map needs two; `plot.py layers` shows it"):
            self.assertIn("Left out: " + note, page.texts["note"])
        self.assertEqual(page.images, PICTURES)
        self.assertEqual(self.report("p").images, [*PICTURES[2:5], *PICTURES[6:8]])
        more = [self.make(f"{rate}", diverged=True, train__lr=rate) for rate in (1.0, 3.0)]
        self.assertEqual(self.report(lost, *more).images, [*PICTURES, "Final loss against a key"])

    def test_a_damaged_file_costs_a_picture_not_the_page(self):
        def damaged(run):
            raise ScriptError(f"{run}/model.safetensors: 3 bytes")

        with mock.patch.dict(KINDS, heads=KINDS["heads"]._replace(read=damaged),
                             loss=KINDS["loss"]._replace(plot=damaged)):
            page = self.report(self.make("run"))
        self.assertEqual(page.images, [name for name in PICTURES if name not in ("Loss", "Attention heads")])

    def test_numbers_are_those_of_the_logs_and_a_long_run_is_thinned(self):
        run = self.make("long", steps=(1, *range(10, 20_000, 10)), model__n_layer=2, decay=0.1)
        with without_pictures():
            page = self.report(run, self.make("other", model__norm="rmsnorm", diverged=True))
        (long, lost) = self.data["groups"]
        self.assertEqual((long["steps"][0], long["steps"][-1]), (1, 19_990))
        self.assertEqual(long["sites"]["stream"]["grad"][0], [[0.0011, 0.00011, 1.1e-05]])
        self.assertEqual(long["sites"]["attn_out"]["rms"][-1], [[None, 0.25, 0.5]])
        self.assertEqual((lost["sites"]["stream"]["grad"][-1], lost["losses"]["train"][0][-1]),
                         ([[None] * 4], None))
        losses = long["losses"]
        self.assertEqual((losses["train"][0][0], losses["x"][0], losses["val"][0][0], losses["at"][0]),
                         (3.5, 1, 2.0, 30))
        self.assertLess(2 * len(long["steps"]) * 3 * len(long["sites"]), 10_001)
        self.assertLess(len(page.content), 1_000_000)

    def test_watching_rewrites_the_page_until_the_run_is_killed(self):
        run, page = self.make("run"), self.root / "live.html"
        (run / "summary.json").unlink()
        folder = os.open(run, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)  # as the program does
        shown = []  # at each pause: whether the page is loaded again, and its last step

        def pause(_):
            content = page.read_text(encoding="utf-8")
            (group,) = json.loads(Page(content).texts["script"][0])["groups"]
            shown.append(('http-equiv="refresh"' in content, group["steps"][-1]))
            if len(shown) == 1:
                with open(run / "layers.csv", "a", encoding="utf-8") as rows:
                    rows.write("70,0,stream,0,1,1,0,1,1,1,0,,\n")
            elif len(shown) == 2:
                fcntl.flock(folder, fcntl.LOCK_UN)

        with without_pictures(), mock.patch("sys.argv", ["report.py", "--watch", str(run), "-o", str(page)]), \
                mock.patch.object(report.time, "sleep", pause), contextlib.redirect_stdout(io.StringIO()) as output:
            report.run()
        self.assertEqual(shown, [(True, 60), (True, 70), *[(False, 70)] * 4])
        self.assertEqual(output.getvalue().count("wrote "), 3)
        self.assertIn("<li>pre · layernorm: stopped at step 60 of 60; ", page.read_text(encoding="utf-8"))

    def test_default_name_and_errors(self):
        run = self.make("runs/a")
        self.assertEqual(self.call("report.py", run).stdout, "wrote runs/a/report.html\n")
        self.assertTrue((run / "report.html").is_file())
        self.refused("report.py", run, "-o", "x.png", says=r"-o x\.png: .* name ending in \.html or \.htm")
        (run / "summary.json").write_text("{")
        self.refused("report.py", run, code=1, says="a: damaged summary.json")


class Figures(CliTest):
    """The figures and sentences about real runs are those of compare.py."""

    def test_figures_and_sentences_are_those_of_compare(self):
        small = {"init": {"std": 0.001}}
        for seed in (1, 2, 3):
            self.train(f"runs/pre-{seed}", {"model": small, "train": {"seed": seed}})
            self.train(f"runs/post-{seed}", {"model": {**small, "norm_placement": "post"}, "train": {"seed": seed}})
        compared = comparison(find_runs([self.path("runs")], "config.json"))
        with without_pictures():
            content = report.report(find_runs([self.path("runs")], "config.json"))
        page = Page(content)
        parts = parts_of(compared)
        self.assertEqual(page.tables, [[[*row] for row in part.rows] for part in parts])
        self.assertEqual(page.texts["h3"], [part.heading.rstrip(":") for part in parts[1:]])
        self.assertEqual(page.texts["soft"][-len(parts[0].lines):], [*parts[0].lines])
        self.assertEqual({remark["kind"] for remark in compared["remarks"]}, {"differs", "noise", "small_branch"})
        for remark in compared["remarks"]:
            self.assertIn(f"<li>{html.escape(remark['text'])}</li>", content)
        self.assertEqual(content.count("<li>"), len(compared["remarks"]))


if __name__ == "__main__":
    unittest.main()
