#!/usr/bin/python3
"""Same config, same bits: whatever the threads, whatever is logged; and what two configs share, they share exactly."""

import glob
import os
import platform
import unittest

import numpy as np
from cli import LONG, CliTest, Run, cpu_flags, environment, merged

# Wide enough for products of several tiles, tall enough for several blocks of rows, and with dropout's draws.
WIDE = {"model": {"d_model": 80, "context": 32, "n_head": 2, "dropout": 0.1, "bias": True},
        "train": {"steps": 6, "batch_size": 6, "grad_accum": 2}, "log": {"every": 1, "layers_every": 3},
        "eval": {"every": 3}, "checkpoint": {"every": 3}}


class Bits(CliTest):
    def test_bf16_rounds_the_operands_and_learns_the_same(self):
        exact, rounded = self.train("fp32"), self.train("bf16", {"train": {"precision": "bf16"}})
        for a, b in zip(exact.rows("metrics.csv"), rounded.rows("metrics.csv"), strict=True):
            self.assertNotEqual(a["train_loss"], b["train_loss"])
            self.assertAlmostEqual(float(a["train_loss"]), float(b["train_loss"]), delta=0.02)
        self.assertAlmostEqual(rounded.summary["final_val_loss"], exact.summary["final_val_loss"], delta=0.02)
        # Evaluating the run later uses its precision.
        result = self.normscope("eval", rounded.path).stdout
        self.assertIn(f"{rounded.summary['final_val_loss']:.6f}", result)

    def test_accumulating_two_halves_is_the_whole_within_rounding(self):
        changes = {"model": {"dropout": 0.2}, "log": {"every": 1, "layers_every": 1}, "eval": {"every": 0}}
        whole = self.train("whole", changes | {"train": {"steps": 10, "batch_size": 16}})
        halves = self.train("halves", changes | {"train": {"steps": 10, "batch_size": 8, "grad_accum": 2}})
        for name, columns in (("metrics.csv", ("tokens", "train_loss", "grad_norm", "val_loss")),
                              ("layers.csv", ("rms", "abs_max", "grad_rms", "grad_abs_max", "grad_norm", "token_cosine",
                                              "branch_share")),
                              ("heads.csv", ("max_logit", "entropy", "first_share"))):
            for a, b in zip(whole.rows(name), halves.rows(name), strict=True):
                place = [[row.get(key) for key in ("step", "layer", "site", "head")] for row in (a, b)]
                self.assertEqual(*place)
                absolute = 1e-5 if name == "heads.csv" else 0  # a largest logit may be near 0
                for column in columns:
                    if a[column] or b[column]:
                        np.testing.assert_allclose(float(a[column]), float(b[column]), rtol=1e-5, atol=absolute,
                                                   err_msg=column)


class Matrix(CliTest):
    """Each way to compute a run agrees with itself: at 1 to 4 threads, logged or not, resumed at any step.
    (Two ways, such as two of OpenBLAS's kernels, may differ from each other.) NORMSCOPE_LONG=1 takes every product of
    provider, kernel and flavour, and resumes at each step; else kernels and flavours differ in their threads alone."""

    WAYS = {"openblas": ("openblas", "fp32"), "native": ("native", "fp32"), "auto": ("auto", "fp32"),
            "bf16": ("native", "bf16"), "openblas in bf16": ("openblas", "bf16")}
    STEPS = 12 if LONG else 8
    # A constant rate, so that a run of fewer steps is the first part of the whole: resuming prolongs it. Muon moves the
    # matrices of the block, AdamW the rest.
    CONFIG = merged(WIDE, {"model": {"n_layer": 1}, "eval": {"every": 0},
                           "train": {"steps": STEPS, "schedule": "constant", "optimizer": "muon"},
                           "checkpoint": {"every": 5}})

    def assert_agrees_with_itself(self, way, resumed_at=range(1, STEPS) if LONG else (), env=None):
        """`resumed_at`: after which steps. Every run has the weights and the hash of the first; that run is
        returned."""
        gemm, precision = self.WAYS[way]
        sets = ["--set", f"train.gemm={gemm}", "--set", f"train.precision={precision}", "--overwrite"]
        env = environment(**(env or {}))
        first = self.train("first", self.CONFIG, "--threads", "1", *sets, env=env)
        self.assertEqual([first.summary[key] for key in ("gemm", "precision")], [gemm, precision])

        def agrees(run, what):
            with self.subTest(f"{way} {what}"):
                for key in ("final_train_loss", "final_val_loss", "grad_first_last", "growth", "branch_share",
                            "trajectory_hash"):
                    self.assertEqual(run.summary[key], first.summary[key], key)
                self.assertTrue(run.weights() == first.weights())

        for n in (2, 3, 4) if LONG else (3,):
            run = self.train("threads", self.CONFIG, "--threads", str(n), *sets, env=env)
            self.assertEqual(run.summary["threads"], n)
            self.assert_same_results(run, first)
        if resumed_at:
            quiet = {"log": {"every": 5, "layers_every": 0}, "eval": {"every": 0}, "checkpoint": {"every": 0}}
            agrees(self.train("quiet", merged(self.CONFIG, quiet), "--threads", "1", *sets, env=env), "without logs")
        for step in resumed_at:
            self.train("parts", self.CONFIG, "--threads", "1", *sets, "--set", f"train.steps={step}", env=env)
            part = self.train("parts", self.CONFIG, "--threads", "2", *sets[:-1], "--resume", env=env)
            agrees(part, f"resumed after step {step}")
        return first

    def test_each_provider(self):
        for way in self.WAYS:
            self.assert_agrees_with_itself(way, range(1, self.STEPS) if LONG else (5,))

    def test_each_kernel_and_flavour_of_openblas_and_the_portable_instruction_set(self):
        """test_digits.py has the other instruction sets."""
        cores = {"Haswell": {"avx2", "fma"}, "Zen": {"avx2", "fma"}, "SkylakeX": {"avx512f", "avx512bw"}}
        libraries = {flavour: glob.glob(f"/usr/lib/{platform.machine()}-*/openblas-{folder}/libopenblas.so.0")
                     for flavour, folder in (("openmp", "openmp"), ("pthreads", "pthread"))}
        variants = [("native", "NORMSCOPE_ISA", "baseline", "isa", "baseline")]
        variants += [("openblas", "OPENBLAS_CORETYPE", core, "kernel", core) for core, needed in cores.items()
                     if needed <= cpu_flags()]
        variants += [("openblas", "LD_PRELOAD", paths[0], "flavour", flavour) for flavour, paths in libraries.items()
                     if paths]
        for way, variable, value, figure, stated in variants:
            for each in self.WAYS if LONG else (way,):
                summary = self.assert_agrees_with_itself(each, env={variable: value}).summary
                self.assertEqual({**summary, **summary["blas"]}[figure], stated)
        if not all(libraries.values()):
            self.skipTest(f"not installed: {', '.join(flavour for flavour, paths in libraries.items() if not paths)}")

    def test_the_summary_names_what_the_bits_depend_on(self):
        summary = self.train("run").summary
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")]
        self.assertEqual(summary["cpu"], names[0].strip() if names else "unknown")
        self.assertEqual(summary["libc"], os.confstr("CS_GNU_LIBC_VERSION"))
        self.assertRegex(summary["compiler"], r"^(GCC|Clang) \d+\.\d+\.\d+$")
        self.assertEqual(set(summary["blas"]), {"flavour", "version", "kernel"})
        self.assertTrue(all(summary["blas"].values()) and summary["isa"] and summary["version"])


class Shared(CliTest):
    """A parameter's draw depends on the seed and its name, a batch on the seed and the step; on nothing else."""

    def start_of(self, **model):
        """Every tensor of the first batch of the untrained model."""
        name = "-".join(f"{key}-{value}" for key, value in model.items())
        self.normscope("probe", self.config({"model": model}), "--out", name, "--dump", f"{name}.safetensors")
        return Run(self.folder).tensors(f"{name}.safetensors")

    def test_configs_that_differ_in_norm_or_placement_start_alike(self):
        pre = self.start_of(norm_placement="pre")
        others = [{"norm_placement": p} for p in ("post", "sandwich", "peri", "res_post", "rezero", "none", "mix")]
        for model in (*others, {"norm": "rmsnorm"}, {"norm": "none"}, {"norm_affine": False}, {"qk_norm": True}):
            other = self.start_of(**model)
            shared = [n for n in pre if n in other and not n.startswith(("act", "grad", "logits", "loss"))]
            self.assertLessEqual({"tokens", "targets", "embed.token.weight", "blocks.1.ffn.out.weight"}, set(shared))
            for name in shared:
                np.testing.assert_array_equal(pre[name], other[name], err_msg=f"{model} {name}")


if __name__ == "__main__":
    unittest.main()
