#!/usr/bin/python3
"""The program makes the figures that README.md states: the quick start's row of pre-norm, the gradients and tokens of
post-norm, and in the long form post-norm's row, the losses of the table of claims and nanoGPT's. All printed digits are
compared: those of a processor with a fused multiply-add."""

import json
import os
import re
import unittest

from cli import LONG, ROOT, CliTest, Run

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()
THREADS = str(min(2, len(os.sched_getaffinity(0))))  # no bit depends on their number
NANOGPT_TEXT = os.path.join(ROOT, "data", "tinyshakespeare.txt")


class Numbers(CliTest):
    def trained(self, config, *settings):
        """The run of a config with settings KEY=VALUE."""
        changes = [word for setting in settings for word in ("--set", setting)]
        self.normscope("train", os.path.join(ROOT, "configs", config + ".json"), *changes, "--out", config, "--overwrite",
                       "--quiet", "--threads", THREADS)
        return Run(self.path(config))

    def test_quick_start_and_its_gradients(self):
        table = [re.split(r"\s{2,}", line) for line in re.findall(r"(?m)^(?:run|pre|post) {2,}.*$", README)]
        headings, rows = table[0], table[1:]
        self.assertEqual([row[0] for row in rows], ["pre", "post"])
        gradient = {}
        for row in rows:
            stated, is_whole = dict(zip(headings, row, strict=True)), LONG or row[0] == "pre"
            # The rate is constant: a shorter run is the beginning of the whole one.
            run = self.trained(f"deep_{row[0]}", *([] if is_whole else ["train.steps=20", "eval.every=0"]))
            self.assertEqual(run.summary["digits"], "portable")
            for heading, key, form in (("best val", "best_val_loss", ".4f"), ("final val", "final_val_loss", ".4f"),
                                       ("final train", "final_train_loss", ".4f"), ("growth", "growth", ".3g"),
                                       ("grad first/last", "grad_first_last", ".3g")) if is_whole else ():
                with self.subTest(run=row[0], figure=heading):
                    self.assertEqual(format(run.summary[key], form), stated[heading])
            gradient |= {(row[0], int(site["step"]), int(site["layer"])): float(site["grad_rms"])
                         for site in run.rows("layers.csv") if site["site"] == "stream"}
        first = [value for (_, step, _), value in gradient.items() if step == 1]
        stated = (*re.search(r"both gradients between (\S+) and (\S+)", README).groups(),
                  *re.search(r"After 20 steps [^.]* (\S+) at block 12 to (\S+) at the embedding", README).groups())
        measured = (min(first), max(first), gradient["post", 20, 12], gradient["post", 20, 0])
        for number, value in zip(stated, measured, strict=True):
            self.assertEqual(float(format(value, ".0e")), float(number))

    def test_tokens_of_post_norm(self):
        self.trained("deep_post", "train.steps=5")
        output = self.script("measure.py", "deep_post", "--only", "token_cosine", "--only", "rank", "--json").stdout
        layers = json.loads(output)["layers"]
        stated = re.search(r"token_cosine (\S+) after block 6, (\S+) after block 12; rank (\S+) of 64", README)
        sixth, last, rank = stated.groups()
        self.assertEqual([format(layers[layer][name], ".3g") for layer, name in ((6, "token_cosine"), (12, "token_cosine"))],
                         [sixth, last])
        self.assertEqual(format(layers[12]["rank"], ".2g"), rank)

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
