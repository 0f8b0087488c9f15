#!/usr/bin/python3
"""The program makes the figures that README.md states: the gradients and tokens of the quick start's first steps, and
in the long form the quick start's table, the losses of the table of claims and nanoGPT's. All printed digits are
compared: those of a processor with a fused multiply-add, whose bits test_digits.py proves to be the same in each run of
the tests.
"""

import os
import re
import unittest
from pathlib import Path

from cli import LONG, ROOT, CliTest, Run  # which finds lib
from lib.model import measures

README = Path(ROOT, "README.md").read_text(encoding="utf-8")
THREADS = str(min(2, len(os.sched_getaffinity(0)))) if LONG else "1"  # no bit depends on their number
NANOGPT_TEXT = os.path.join(ROOT, "data", "tinyshakespeare.txt")


class Numbers(CliTest):
    def trained(self, config, *settings):
        """The run of a config with settings KEY=VALUE."""
        changes = [word for setting in settings for word in ("--set", setting)]
        self.normscope("train", os.path.join(ROOT, "configs", config + ".json"), *changes, "--out", config,
                       "--overwrite", "--quiet", "--threads", THREADS)
        return Run(self.path(config))

    @unittest.skipUnless(LONG, "the long form")
    def test_quick_start(self):
        table = [re.split(r"\s{2,}", line) for line in re.findall(r"(?m)^(?:run|pre|post) {2,}.*$", README)]
        headings, rows = table[0], table[1:]
        self.assertEqual([row[0] for row in rows], ["pre", "post"])
        for row in rows:
            stated, run = dict(zip(headings, row, strict=True)), self.trained(f"deep_{row[0]}")
            self.assertEqual(run.summary["digits"], "portable")
            for heading, key, form in (("best val", "best_val_loss", ".4f"), ("final val", "final_val_loss", ".4f"),
                                       ("final train", "final_train_loss", ".4f"), ("growth", "growth", ".3g"),
                                       ("grad first/last", "grad_first_last", ".3g")):
                with self.subTest(run=row[0], figure=heading):
                    self.assertEqual(format(run.summary[key], form), stated[heading])

    def test_tokens_and_gradients_of_the_first_steps(self):
        """The quick start's rate is constant, so that shorter runs are its beginning; evaluations change no bit."""
        post = self.trained("deep_post", "train.steps=20", "eval.batches=1", "eval.every=0",
                            "checkpoint.keep_every=300")
        model = measures.Model(post.file("weights/step_4.safetensors"))
        layers = measures.measure(model, ["token_cosine", "rank"])["layers"]
        stated = re.search(r"token_cosine (\S+) after block 6, (\S+) after block 12; rank (\S+) of 64", README)
        measured = [format(layers[6]["token_cosine"], ".3g"), format(layers[12]["token_cosine"], ".3g"),
                    format(layers[12]["rank"], ".2g")]
        self.assertEqual(measured, list(stated.groups()))

        self.normscope("probe", os.path.join(ROOT, "configs", "deep_pre.json"), "--out", "pre")
        gradients = [[float(row["grad_rms"]) for row in run.rows("layers.csv")
                      if row["site"] == "stream" and row["step"] == step]
                     for run, step in ((Run(self.path("pre/seed-1")), "0"), (post, "1"), (post, "20"))]
        first, last = gradients[0] + gradients[1], gradients[2]
        stated = (*re.search(r"both gradients between (\S+) and (\S+)", README).groups(),
                  *re.search(r"After 20 steps [^.]* (\S+) at block 12\s+to (\S+) at\s+the embedding", README).groups())
        for number, value in zip(stated, (min(first), max(first), last[12], last[0]), strict=True):
            self.assertEqual(float(format(value, ".0e")), float(number))

        rows = {(row["step"], row["layer"], row["site"]): row for row in post.rows("layers.csv")}
        apart = [format(1 - float(rows[step, "12", "stream"]["token_cosine"]), ".0e") for step in ("1", "5")]
        before, after = ([float(rows[step, "6", site]["grad_rms"]) for step in ("1", "20")]
                         for site in ("attn_in", "stream_mid"))
        passed = [format(a / b, ".2g") for a, b in zip(before, after)]
        stated = re.search(r"1 − cosine is (\S+) after block 12. At step 5 it is (\S+),.*"
                           r"block 6's attention passes on (\S+) of the gradient, at\s+step\s+20\s+(\S+)\. ",
                           README, re.DOTALL).groups()
        self.assertEqual([*map(float, apart + passed)], [*map(float, stated)])

    @unittest.skipUnless(LONG, "the long form")
    def test_claims(self):
        pattern = r"normscope train configs/(\w+)\.json --set (\S+) --out .*?\| (?:validation )?([0-9.]+)"
        claims = re.findall(pattern, README)
        self.assertEqual(len(claims), 4)
        for config, setting, stated in claims:
            with self.subTest(setting):
                loss = self.trained(config, setting).summary["final_val_loss"]
                self.assertEqual(format(loss, f".{len(stated.partition('.')[2])}f"), stated)

    @unittest.skipUnless(LONG and os.path.exists(NANOGPT_TEXT), "the long form, after scripts/get_tinyshakespeare.sh")
    def test_nanogpt(self):
        line = next(line for line in README.splitlines() if "nanogpt_cpu.json" in line and "after 2000 steps" in line)
        stated = float(re.search(r"validation ([0-9.]+) after 2000 steps", line)[1])
        self.assertAlmostEqual(self.trained("nanogpt_cpu").summary["final_val_loss"], stated, delta=0.005)


if __name__ == "__main__":
    unittest.main()
