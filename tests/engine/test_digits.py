#!/usr/bin/python3
"""One trajectory everywhere: stored hashes of runs, on every instruction set with a fused multiply-add that this
processor has, at two thread counts. Another build is compared by running this test with it (NORMSCOPE_BINARY)."""

import unittest
from pathlib import Path

import mutants
from cli import BINARY, LONG, CliTest, Run, cpu_flags, environment, merged

BASE = {"model": {"n_layer": 3, "n_head": 4, "d_model": 40, "context": 24},
        "train": {"steps": 20, "batch_size": 5, "lr": 0.003},
        "eval": {"every": 10, "batches": 2}, "log": {"every": 1, "layers_every": 5}, "checkpoint": {"every": 0}}
# Between them: six norms, four placements, five activations and positions, three optimisers, three schedules.
CONFIGS = {
    "pre, layernorm, gelu, dropout, two micro-batches": {
        "model": {"dropout": 0.1, "bias": True}, "train": {"grad_accum": 2, "warmup_steps": 5}},
    "post, rmsnorm, swiglu, rope, muon, wsd": {
        "model": {"norm_placement": "post", "norm": "rmsnorm", "activation": "swiglu", "d_ff": 107, "position": "rope",
                  "qk_norm": True, "tie_embeddings": False, "init": {"scheme": "xavier_normal", "embed_std": 1}},
        "train": {"optimizer": "muon", "schedule": "wsd"}},
    "deepnorm and sandwich, derf, relu2, sinusoids, sgd": {
        "model": {"norm_placement": ["deepnorm", "sandwich", {"attn": "pre", "ffn": "res_post"}], "norm": "derf",
                  "activation": "relu2", "position": "sinusoidal", "branch_scale": "L^-0.3"},
        "train": {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1, "branch_warmup_steps": 4, "schedule": "linear"}},
    "batchnorm, eps outside the root": {"model": {"norm": "batchnorm", "norm_eps": 0.1, "norm_eps_outside": True}},
    "instancenorm, six sequences": {"model": {"norm": "instancenorm"}, "train": {"batch_size": 6}},
}
# Of each run: the hash of its training, and the last validation loss.
DIGITS = dict(zip(CONFIGS, (
    ("bf0daa2f7fb7a488", 3.3246605877884243),
    ("2db6d69fd946e696", 3.47887477373241),
    ("bb0a1b6fa605eb1f", 3.3171104306171655),
    ("aaee4bc446e67b29", 4.060382478424225),
    ("e250a1a58ad24edb", 3.846534577355361)), strict=True))


def instruction_sets():
    """The sets with a fused multiply-add that this processor has, by the names of NORMSCOPE_ISA."""
    if "asimd" in cpu_flags():
        return ["baseline"]  # NEON
    names = {"avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
    return [name for name, needed in names.items() if needed <= cpu_flags()]


@unittest.skipUnless(instruction_sets(), "this processor has no fused multiply-add")
class Digits(CliTest):
    def trained(self, config, isa, threads, program=BINARY):
        """(summary, logs without times, bytes of the checkpoint) of a run."""
        self.normscope("train", self.config(merged(BASE, config)), "--out", "run", "--overwrite", "--threads",
                       str(threads),
                       env=environment(NORMSCOPE_ISA=isa), program=program)
        run = Run(self.path("run"))
        return run.summary, [run.without_timing(), run.rows("layers.csv")], run.bytes("checkpoint.safetensors")

    def test_the_stored_hashes(self):
        self.has_stored_digits(list(CONFIGS)[:3])

    def test_the_stored_hashes_of_norms_by_feature(self):
        self.has_stored_digits(list(CONFIGS)[3:])

    def has_stored_digits(self, names):
        for name in names:
            config, results = CONFIGS[name], {}
            for isa in instruction_sets():
                for threads in (1, 3) if LONG or isa == instruction_sets()[-1] else (1,):
                    summary, logs, weights = self.trained(config, isa, threads)
                    self.assertEqual(summary["digits"], "portable")
                    results[isa, threads] = summary["trajectory_hash"], logs, weights
                    build = f"{name}: {isa}, {threads} threads, {summary['compiler']}, {summary['libc']}"
                    self.assertEqual((summary["trajectory_hash"], summary["final_val_loss"]), DIGITS[name], build)
            first, *others = results.values()
            for other in others:
                self.assertEqual(other, first, name)

    @unittest.skipUnless(LONG, "the long form: it compiles kernels anew")
    def test_contraction_by_the_compiler_changes_a_hash(self):
        isa = instruction_sets()[0]
        mutants.build(Path(self.folder), [f"kernels/isa/{isa}.cpp"], [], ["-O2", "-ffp-contract=fast"])
        name, config = next(iter(CONFIGS.items()))
        summary, _, _ = self.trained(config, isa, 1, self.path("mutant"))
        self.assertNotEqual(summary["trajectory_hash"], DIGITS[name][0])

    def test_what_is_not_portable_says_why(self):
        for keys, reason in (({"gemm": "openblas"}, "OpenBLAS"), ({"precision": "bf16"}, "bf16")):
            summary, _, _ = self.trained({"train": keys}, instruction_sets()[0], 1)
            self.assertIn(reason, summary["digits"])

    def test_the_kernel_of_bf16_is_named_and_rounding_alone_has_the_same_digits_everywhere(self):
        in_bf16 = {"train": {"precision": "bf16"}}
        results = {}
        for isa in instruction_sets():
            summary, *files = self.trained(in_bf16, isa, 1)
            self.assertEqual((summary["isa"], summary["digits"]), (isa, "of operands rounded to bf16"))
            results[isa] = summary["trajectory_hash"], files
        first, *others = results.values()
        for other in others:
            self.assertEqual(other, first)
        isa = instruction_sets()[0]
        for settings, is_noted in ((in_bf16, True), ({}, False)):
            said = self.normscope("train", self.config(merged(BASE, settings)), "--out", "noted", "--overwrite",
                                  env=environment(NORMSCOPE_ISA=isa)).stdout
            self.assertEqual(f"note: with {isa} on this processor bf16 is no faster than fp32\n" in said, is_noted)
        names = self.normscope("--help").stdout  # a processor may have AMX that the system does not permit
        if "avx512_bf16" in cpu_flags():
            self.assertNotIn("avx512_bf16 (not", names)
        for isa in ("avx512_bf16", "avx512_amx"):
            if f"{isa} (not" in names or isa not in names:
                continue
            summary, _, _ = self.trained(in_bf16, isa, 1)
            self.assertEqual((summary["isa"], summary["digits"]), (isa, f"of bf16 products by {isa}"))
            name, config = next(iter(CONFIGS.items()))
            summary, _, _ = self.trained(config, isa, 1)
            self.assertEqual((summary["isa"], summary["trajectory_hash"]), ("avx512", DIGITS[name][0]))


if __name__ == "__main__":
    unittest.main()
