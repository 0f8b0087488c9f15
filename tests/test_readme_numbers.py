#!/usr/bin/python3
"""The figures that README.md states are what the program makes: the quick start's table, and in the long form nanoGPT's
loss. Instruction sets round differently: between AVX2 and AVX-512 the losses below differ by less than 0.001."""

import os
import re
import unittest

from cli import LONG, ROOT, CliTest, Run

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()
NANOGPT_TEXT = os.path.join(ROOT, "data", "tinyshakespeare.txt")


class Numbers(CliTest):
    def trained(self, config):
        self.normscope("train", os.path.join(ROOT, "configs", config + ".json"), "--out", config, "--quiet")
        return Run(self.path(config)).summary

    def test_quick_start(self):
        table = [re.split(r"\s{2,}", line) for line in re.findall(r"(?m)^(?:run|pre|post) {2,}.*$", README)]
        headings, rows = table[0], table[1:]
        self.assertEqual([row[0] for row in rows], ["pre", "post"])
        for row in rows:
            stated = dict(zip(headings, row, strict=True))
            summary = self.trained(f"deep_{row[0]}")
            for heading, key, relative in (("best val", "best_val_loss", 1e-3), ("final val", "final_val_loss", 1e-3),
                                           ("final train", "final_train_loss", 2e-3), ("growth", "growth", 1e-2),
                                           ("grad first/last", "grad_first_last", 0.3)):
                with self.subTest(run=row[0], figure=heading):
                    self.assertAlmostEqual(summary[key] / float(stated[heading]), 1, delta=relative)

    @unittest.skipUnless(LONG and os.path.exists(NANOGPT_TEXT), "the long form, after scripts/get_tinyshakespeare.sh")
    def test_nanogpt(self):
        stated = float(re.search(r"nanogpt_cpu\.json +# validation ([0-9.]+) after 2000 steps", README)[1])
        self.assertAlmostEqual(self.trained("nanogpt_cpu")["final_val_loss"], stated, delta=0.01)


if __name__ == "__main__":
    unittest.main()
