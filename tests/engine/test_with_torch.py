#!/usr/bin/python3
"""Values and gradients against PyTorch's, of configs drawn at random, in which every two of placement, norm and
activation meet (in the long form: all three): the engine's float32 must be as near to float64 as PyTorch's float32 is.
Skipped (exit 77) where PyTorch is not installed.

test_with_torch.py COUNT [FIRST_SEED] adds so many configs, whose placements are lists and pairs too, and shows the
worst; without it 40, in the long form 1,000.
"""

import concurrent.futures
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import unittest

import numpy as np
from test_check_random import drawn

from cli import LONG, ROOT, TEXT, CliTest, read_safetensors, write_safetensors

if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch (apt-get install python3-torch)")
    sys.exit(77)
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import torch
import torch_model
from check_with_torch import differences, recompute
from lib.base.keys import NORMS

import torch_combinations as checker

COUNT, FIRST_SEED = 1000 if LONG else 40, 0
TIMES, MANY_TIMES = 3, 10  # as far off as PyTorch: in a few by chance, as PyTorch is from us; in none
NOISE = 1e-6  # relative error of a tensor that float32 cannot fall below


def by_pairs(models):
    """The models of which each has a pair that no earlier one has, the richest first."""
    pairs = [set(itertools.combinations(model.items(), 2)) for model in models]
    chosen, missing = [], set().union(*pairs)
    while missing:
        richest = max(range(len(models)), key=lambda i: len(pairs[i] & missing))
        chosen.append(models[richest])
        missing -= pairs[richest]
    return chosen


def largest_error(given, exact):
    """The largest error of a tensor: of values, gradients, logits and loss."""
    return np.max(list(differences(given, exact).values()))


def both_errors(tensors, metadata):
    """(the engine's, PyTorch's) at the weights of an exchange file, both in float32 and against float64."""
    exact = recompute(tensors, metadata)
    return largest_error(tensors, exact), largest_error(recompute(tensors, metadata, torch.float32), exact)


def errors_of(number, model):
    """(config, pairs of both_errors()) of a random config with these keys in its section `model`: the first of a series
    of draws that is accepted, and finite in PyTorch. One pair, or nine where the first says that the engine is worse:
    eight more at weights a rounding away, because a pair is two draws of rounding, and at a ReLU's kink rounding decides
    which gradient is computed."""
    for seed in range(number, number + 1_000_000, 10_000):
        config = drawn(seed)
        config["model"] |= model
        config["train"].pop("precision")
        # Sums of few numbers have errors that scatter: either side then has the larger one by chance.
        if min(config["model"]["d_model"], config["model"]["d_ff"]) < 8 or config["model"]["norm_eps"] == 0:
            continue
        random = np.random.default_rng(seed)
        with tempfile.TemporaryDirectory(prefix="normscope-torch-") as folder:
            try:
                tensors, metadata = checker.dump(folder, config, str(seed))
            except RuntimeError:
                continue
            pairs = [both_errors(tensors, metadata)]
            if more_than(TIMES, *pairs[0]):
                for _ in range(8):
                    away = {name: np.nextafter(t, random.choice([-np.inf, np.inf], t.shape).astype(t.dtype))
                            for name, t in checker.parameters(tensors).items()}
                    pairs.append(both_errors(*checker.dump_from(folder, away)))
        if np.isfinite([theirs for _, theirs in pairs]).all():
            return config, np.array(pairs)
    raise AssertionError(f"no draw with {model} is accepted and finite")


def more_than(times, ours, theirs):
    return not ours <= times * max(theirs, NOISE)  # a NaN of ours is


class Torch(unittest.TestCase):
    def test_float32_is_as_near_as_pytorch_s(self):
        torch.set_num_threads(1)
        combinations = list(checker.combinations().values())
        self.assertGreaterEqual(len(combinations), (8 * 7 + 2) * 5)
        models = (combinations if LONG else by_pairs(combinations)) + COUNT * [{}]
        with concurrent.futures.ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            rows = list(pool.map(errors_of, itertools.count(FIRST_SEED), models))
        of_one = of_nine = far = 0
        for config, pairs in rows:
            medians, largest = np.median(pairs, axis=0), pairs.max(axis=0)
            of_nine += more_than(TIMES, *medians)
            far += more_than(MANY_TIMES, *largest)
            if more_than(TIMES, *pairs[0]):
                of_one += 1
                print(f"engine and PyTorch: {pairs[0]}, medians {medians}, largest {largest}: {json.dumps(config)}")
        print(f"{len(rows)} random configs; the engine's error is more than {TIMES} times PyTorch's in {of_one}, "
              f"its median of nine in {of_nine}; its largest more than {MANY_TIMES} times in {far}")
        self.assertLessEqual(of_nine, 0.01 * len(rows))
        self.assertEqual(far, 0)
        self.assertLessEqual(of_one, 2 + 0.02 * len(rows))

    def test_a_wrong_gradient_is_caught(self):
        """The engine's against PyTorch's with another epsilon in its norms, and one gradient 0.1% too large."""
        with tempfile.TemporaryDirectory() as folder:
            config = {"model": checker.BASE, "train": {"steps": 1, "batch_size": 4}}
            tensors, metadata = checker.dump(folder, config, "planted")
        self.assertFalse(more_than(TIMES, *both_errors(tensors, metadata)))
        other_eps = {**metadata, "config": metadata["config"].replace('"norm_eps":1e-05', '"norm_eps":0.001')}
        self.assertTrue(more_than(MANY_TIMES, *both_errors(tensors, other_eps)))
        tensors["grad.blocks.0.ffn_norm.weight"] *= 1.001
        self.assertTrue(more_than(MANY_TIMES, *both_errors(tensors, metadata)))


@torch.no_grad()
def validation_loss(model, vocab):
    """The loss of a model in PyTorch on the end of the tests' text."""
    index = {chr(point): i for i, point in enumerate(vocab)}
    tail = torch.tensor([index[c] for c in TEXT[int(0.9 * len(TEXT)):]])
    context = model.config["context"]
    total = sum(torch_model.cross_entropy(model(inputs[None]), targets[None]) * len(inputs)
                for inputs, targets in zip(tail[:-1].split(context), tail[1:].split(context)))
    return total.item() / (len(tail) - 1)


class Evaluation(CliTest):
    def test_every_norm(self):
        """Norms with running statistics evaluate by them; steps have moved them."""
        for norm in NORMS:
            run = self.train(norm, {"model": {"norm": norm, "norm_eps": 0.1, "norm_eps_outside": True},
                                    "train": {"steps": 6, "lr": 0.01}, "eval": {"batches": 0}})
            with self.subTest(norm):
                self.assertAlmostEqual(validation_loss(*torch_model.load(run.path, torch.float64)),
                                       run.summary["final_val_loss"], delta=1e-5)


class BranchWarmUp(CliTest):
    """train.branch_warmup_steps: the weights of step s are those of a model whose branches are multiplied by min(s/(T
    l), 1)."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.train("run", {"train": {"steps": 6, "branch_warmup_steps": 10, "lr": 0.01},
                                             "eval": {"batches": 0}})

    def dumped(self, name, *options):
        self.normscope("probe", self.run_folder.file("config.json"), "--out", f"{name}-probe", "--dump", name, *options)
        return read_safetensors(self.path(name))

    def test_a_model_stopped_during_the_warm_up(self):
        model, vocab = torch_model.load(self.run_folder.path, torch.float64)
        self.assertEqual(model.branch_progress, 0.6)
        self.assertAlmostEqual(validation_loss(model, vocab), self.run_folder.summary["final_val_loss"], delta=1e-5)

    def test_the_exchange_file_of_a_step(self):
        tensors, metadata = self.dumped("step", "--from", self.run_folder.path)
        self.assertEqual(metadata["step"], "6")
        self.assertLess(largest_error(tensors, recompute(tensors, metadata)), 1e-4)
        self.assertEqual(torch_model.load(self.path("step"))[0].state_dict().keys(),
                         torch_model.load(self.run_folder.path)[0].state_dict().keys())
        metadata["step"] = "1000"
        self.assertGreater(largest_error(tensors, recompute(tensors, metadata)), 1e-2)
        tensors["tokens"][0, 0], metadata["checksum"] = 10_000, ""
        write_safetensors(self.path("unknown"), tensors, metadata)
        self.dumped("bf16", "--set", "train.precision=bf16")
        script = os.path.join(ROOT, "scripts", "check_with_torch.py")
        closed = self.call("-c", f"{sys.executable} {script} step >&-", program="sh")
        self.assertRegex(closed.stderr, r"\A\[torch\] output: stdout is closed.*\n\Z")
        for name, says in (("unknown", "out of (range|bounds)"), ("bf16", "dump with --set train.precision=fp32")):
            refused = self.call(script, name, program=sys.executable)
            self.assertEqual((refused.returncode, refused.stderr.count("\n")), (1, 1), refused.stderr)
            self.assertRegex(refused.stderr, rf"^\[torch\] {name}: .*{says}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COUNT, FIRST_SEED = int(sys.argv[1]), int((sys.argv + [0])[2])
    unittest.main(argv=sys.argv[:1])
