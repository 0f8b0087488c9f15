#!/usr/bin/python3
"""Every legal combination's gradients against PyTorch's; skipped (exit 77) where PyTorch is not installed."""

import importlib.util
import os
import sys
import unittest

from cli import ROOT

if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch (apt-get install python3-torch)")
    sys.exit(77)
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import check_all_with_torch as checker


class Torch(unittest.TestCase):
    def test_every_legal_combination_agrees(self):
        checker.torch.set_num_threads(1)
        found = checker.check(checker.combinations())
        self.assertGreaterEqual(len(found), (8 * 7 + 2) * 5 + 20)
        for name, (error, tensor) in found.items():
            with self.subTest(name, tensor=tensor):
                self.assertFalse(not error <= 1e-4, error)
                self.assertGreater(error, 0, "float32 against float64 is never exact: nothing was compared")
        worst = max(found, key=lambda name: found[name][0])
        print(f"worst of {len(found)} combinations: {found[worst][0]:.2e} ({worst})")

    def test_a_wrong_gradient_is_caught(self):
        # The engine's pre model against PyTorch's with another epsilon in its norms, and one gradient 0.1% too large.
        model = {**checker.BASE, "norm_placement": "pre", "norm": "layernorm", "activation": "gelu"}
        for fault in ("norm_eps", "gradient"):
            def spoil(tensors, config, fault=fault):
                if fault == "norm_eps":
                    config["model"]["norm_eps"] = 1e-3
                else:
                    tensors["grad.blocks.0.ffn_norm.weight"] *= 1.001
            with self.subTest(fault):
                self.assertGreater(checker.check({"planted": model}, spoil)["planted"][0], 1e-4)


if __name__ == "__main__":
    unittest.main()
