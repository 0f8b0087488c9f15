#!/usr/bin/python3
"""The commands on runs and configs: sample, eval, probe, config, bench."""

import json
import math
import os
import re
import resource
import unittest
from collections import Counter

import numpy as np
from cli import (LOGS, LONG, SITES, TEXT, VOCABULARY, CliTest, Run, cpu_flags, environment, read_safetensors,
                 sites_of, write_safetensors)
from lib.model.forward import cross_entropy  # in scripts, which cli.py puts on the path


class Sample(CliTest):
    def setUp(self):
        super().setUp()
        self.train("run", {"train": {"lr": 0.01}})

    def sample(self, *options):
        text = self.normscope("sample", "run", *options).stdout
        self.assertTrue(text.endswith("\n"))
        return text[:-1]

    def test_the_seed_and_the_options_decide_the_text(self):
        text, greedy, third = self.sample(), self.sample("--greedy"), self.sample("--seed", "3")
        self.assertEqual(len({text, greedy, third, self.sample("--seed", "4")}), 4)
        for options, same in ((["--seed", "1"], text), (["--threads", "3"], text), (["--top-p", "1"], text),
                              (["--seed", "3"], third),
                              (["--temperature", "0"], greedy), (["--top-k", "1"], greedy), (["--top-p", "0"], greedy),
                              (["--greedy", "--seed", "7"], greedy), (["--length", "50"], text[:50])):
            self.assertEqual(self.sample(*options), same, options)

    def test_length_counts_characters_after_the_prompt(self):
        for length in (0, 1, 15, 16, 17, 160):
            self.assertEqual(len(self.sample("--prompt", "She ", "--length", str(length))), 4 + length)
        self.assertEqual((self.sample("--length", "0"), len(self.sample())), ("", 500))

    def test_a_prompt_counts_by_its_last_context_and_is_a_newline_if_not_given(self):
        self.assertEqual(self.sample("--prompt", TEXT[:100])[100:], self.sample("--prompt", TEXT[84:100])[16:])
        self.assertEqual(self.sample("--prompt", "\n"), "\n" + self.sample())

    @unittest.skipUnless(LONG, "the long form")
    def test_a_character_costs_the_same_however_long_the_text(self):
        def seconds(length):  # of the program alone, whatever else the machine does
            begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.sample("--length", str(length))
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin

        # The least of several measurements: noise only adds. A cost by the square would be 16 times as much.
        self.assertLess(min(seconds(16000) for _ in range(3)), 10 * min(seconds(4000) for _ in range(3)))


class Eval(CliTest):
    def table(self, *arguments):
        """{row: (nats, bits)} of what eval prints."""
        text = self.normscope("eval", *arguments).stdout
        return {m[1]: (float(m[2]), float(m[3])) for m in re.finditer(r"(?m)^(\S+) +(\d+\.\d+) +(\d+\.\d+)$", text)}

    def test_baselines_are_of_the_validation_split(self):
        self.train("run")
        table = self.table("run")
        self.assertEqual(list(table), ["model", "uniform", "unigram", "bigram", "trigram", "4-gram"])
        n = math.floor(0.9 * len(TEXT))
        train, val = TEXT[:n], TEXT[n:]
        counts = Counter(train)
        unigram = -np.mean([math.log((counts[c] + 0.1) / (n + 0.1 * VOCABULARY)) for c in val[1:]])
        pairs, firsts = Counter(zip(train, train[1:])), Counter(train[:-1])
        bigram = -np.mean([math.log((pairs[p] + 0.1) / (firsts[p[0]] + 0.1 * VOCABULARY)) for p in zip(val, val[1:])])
        for name, nats in (("uniform", math.log(VOCABULARY)), ("unigram", unigram), ("bigram", bigram)):
            self.assertAlmostEqual(table[name][0], nats, delta=2e-6, msg=name)
        for name, (nats, bits) in table.items():
            self.assertAlmostEqual(bits, nats / math.log(2), delta=2e-6, msg=name)
        result = json.loads(self.normscope("eval", "run", "--json").stdout)
        self.assertEqual((result["step"], result["characters"]), (25, len(val) - 1))
        self.assertEqual({name: round(nats, 6) for name, nats in result["nats"].items()},
                         {name: nats for name, (nats, _) in table.items()})

    def test_a_file_of_ones_own(self):
        run = self.train("run")
        n = math.floor(0.9 * len(TEXT))
        self.write("val.txt", TEXT[n:])
        self.assertEqual(self.table("run", "--data", "val.txt"), self.table("run"))
        self.write("start.txt", TEXT[:200])  # T does not divide it: the last window is shorter
        self.assertIn("199 characters", self.normscope("eval", "run", "--data", "start.txt").stdout)
        # Without its corpus a model still evaluates, and says what is missing.
        os.remove(self.path("text.txt"))
        result = self.call("eval", "run", "--data", "val.txt")
        self.assertEqual(result.returncode, 0)
        self.assertIn(f"{run.summary['final_val_loss']:.6f}", result.stdout)
        self.assertIn("text.txt", result.stderr)


class Probe(CliTest):
    def probe(self, out, *options, changes=None):
        self.normscope("probe", self.config(changes), "--out", out, *options)
        return Run(self.path(out, "seed-1"))

    def test_a_folder_a_seed(self):
        self.probe("p", "--seeds", "3", changes={"train": {"seed": 5}})
        self.assertEqual(sorted(os.listdir(self.path("p"))), ["seed-5", "seed-6", "seed-7"])
        for seed in (5, 6, 7):
            run = Run(self.path("p", f"seed-{seed}"))
            self.assertEqual(set(run.contents()), {"config.json", *LOGS[1:], "summary.json"})
            self.assertEqual(run.json("config.json")["train"]["seed"], seed)
            self.assertEqual([(int(r["layer"]), r["site"]) for r in run.rows("layers.csv")], sites_of(2))
            self.assertEqual({r["step"] for r in run.rows("layers.csv") + run.rows("params.csv")}, {"0"})
            self.assertEqual({r["update_rms"] for r in run.rows("params.csv")}, {""})
            self.assertEqual(run.summary["status"], "probe")
            self.assertFalse(run.summary.keys() & {"best_step", "seconds", "tokens_per_s", "trajectory_hash"})

    def test_it_sees_what_the_first_step_of_training_sees(self):
        probe, run = self.probe("p"), self.train("run")
        for name, own in (("layers.csv", ()), ("params.csv", ("update_rms",)), ("heads.csv", ())):
            first = [row for row in run.rows(name) if row["step"] == "1"]
            for a, b in zip(probe.rows(name), first, strict=True):
                for column in set(a) - {"step", *own}:
                    self.assertEqual(a[column], b[column], f"{name} {a['layer']} {column}")

    def test_dropout_is_off(self):
        with_dropout = self.probe("p", changes={"model": {"dropout": 0.5}})
        self.assertEqual(with_dropout.bytes("layers.csv"), self.probe("q").bytes("layers.csv"))

    def test_rows_over_batches(self):
        # Batch k of a probe is that of step k; a rate of 0 lets training see the same weights at each step.
        K = 3
        run = self.train("run", {"train": {"steps": K, "lr": 0}, "log": {"every": 1, "layers_every": 1}})
        probe = self.probe("p", "--batches", str(K))
        steps = [[row for row in run.rows("layers.csv") if row["step"] == str(k)] for k in range(1, K + 1)]
        for i, row in enumerate(probe.rows("layers.csv")):
            column = {name: np.array([float(step[i][name]) for step in steps]) for name in row if name != "site"
                      and row[name]}
            expected = {name: math.sqrt(np.mean(column[name] ** 2)) for name in ("rms", "grad_rms", "grad_norm")}
            expected |= {"mean": column["mean"].mean(), "abs_max": column["abs_max"].max(), "nonfinite": 0,
                         "grad_abs_max": column["grad_abs_max"].max(), "grad_nonfinite": 0}
            for name, value in expected.items():
                delta = 1e-9 * (1 + abs(value))
                self.assertAlmostEqual(float(row[name]), value, delta=delta, msg=f"{row['site']} {name}")
        norms = {}
        for row in run.rows("params.csv"):
            norms.setdefault(row["param"], []).append(float(row["grad_norm"]))
        for row in probe.rows("params.csv"):
            mean = np.mean(norms[row["param"]])
            self.assertAlmostEqual(float(row["grad_norm_batch"]), mean, delta=1e-9)
            self.assertLess(float(row["grad_norm"]), mean, "the mean of different gradients is shorter")

    def test_from_a_file_is_the_trained_model(self):
        run = self.train("run")
        trained = self.probe("p", "--from", "run/model.safetensors", "--dump", "trained.safetensors")
        dumped = read_safetensors(self.path("trained.safetensors"))[0]
        for name, tensor in run.tensors().items():
            np.testing.assert_array_equal(dumped[name], tensor)
        # A file of another program, its tensors in another order and without metadata, is as good.
        write_safetensors(self.path("plain.safetensors"), dict(reversed(run.tensors().items())))
        for source in ("run", "run/checkpoint.safetensors", "plain.safetensors"):
            probed = self.probe("q", "--from", source, "--overwrite")
            self.assertEqual(probed.bytes("layers.csv"), trained.bytes("layers.csv"), source)

    def test_the_exchange_file_is_complete(self):
        self.probe("p", "--dump", "all.safetensors", "--seeds", "2", "--batches", "2",
                   changes={"model": {"norm_placement": "sandwich", "activation": "swiglu", "tie_embeddings": False}})
        self.assert_valid_file(self.path("all.safetensors"))
        tensors = read_safetensors(self.path("all.safetensors"))[0]
        names = {"tokens", "targets", "logits", "loss"}
        names |= {f"{kind}.{layer}.{site}" for kind in ("act", "act_grad") for layer, site in sites_of(2)}
        parameters = {re.sub(r"attn\.[qkv]\.weight", "attn.qkv.weight", r["param"])
                      for r in Run(self.path("p", "seed-1")).rows("params.csv")}
        self.assertEqual(set(tensors), names | parameters | {f"grad.{name}" for name in parameters})
        self.assertEqual((tensors["tokens"].dtype, tensors["tokens"].shape), (np.int64, (4, 16)))
        np.testing.assert_array_equal(tensors["tokens"][:, 1:], tensors["targets"][:, :-1])
        self.assertEqual(tensors["logits"].shape, (4, 16, VOCABULARY))
        np.testing.assert_array_equal(tensors["act.3.logits"], tensors["logits"])
        for site in SITES:
            width = 64 if site == "ffn_hidden" else 16
            self.assertEqual(tensors[f"act_grad.1.{site}"].shape, (4, 16, width), site)
        loss = cross_entropy(tensors["logits"].astype(np.float64), tensors["targets"])
        np.testing.assert_allclose(tensors["loss"], [loss], rtol=1e-6)

    def test_the_table_is_of_the_first_seed_and_overwrite_removes_the_others(self):
        shown = self.normscope("probe", self.config(), "--out", "p", "--seeds", "3").stdout
        self.write("p/seed-3/notes.txt", "mine")
        self.probe("p", "--overwrite")
        self.assertEqual((sorted(os.listdir(self.path("p"))), os.listdir(self.path("p", "seed-3"))),
                         (["seed-1", "seed-3"], ["notes.txt"]))
        streams = [row for row in Run(self.path("p", "seed-1")).rows("layers.csv") if row["site"] == "stream"]
        table = [line.split() for line in shown.partition("gradient rms")[2].splitlines()[1:] if line]
        for (layer, rms, gradient), row in zip(table, streams):
            self.assertEqual(layer, row["layer"])
            np.testing.assert_allclose([float(rms), float(gradient)], [float(row["rms"]), float(row["grad_rms"])],
                                       rtol=5e-3)


class Config(CliTest):
    def test_keys_are_described(self):
        self.assertIn("model.d_ff = 4*d_model: width of the FFN, F\n    integer, 1..65536\n",
                      self.normscope("config").stdout)

    def test_origin_says_where_each_value_came_from(self):
        self.config({"model": {"n_layer": 3}})
        self.write("child.json", '{\n  "extends": "tiny.json",\n  "train": { "lr": 0.5 } // high\n}')
        shown = self.normscope("config", "child.json", "--origin", "--set", "model.norm=rmsnorm").stdout
        for key, value, origin in (("train.lr", "0.5", r"child\.json"), ("model.norm", '"rmsnorm"', "--set")):
            self.assertRegex(shown, rf"(?m)^{key} +{re.escape(value)} +.*{origin}$")

    def test_a_batch_is_resolved_line_by_line(self):
        self.config()
        lists = [["train.lr=0.5", "name=ä"], [], ["train.lr=-1", "model.n_head=5"], {"train.lr": 1}, ["train.lr=0.1"]]
        lines = "".join(json.dumps(entry) + "\n" for entry in lists) + "[\n"
        result = self.call("config", "tiny.json", "--batch", "--set", "train.lr=0.25", input=lines,
                           env=environment(LC_ALL="C"), encoding="ascii")
        self.assertEqual((result.returncode, result.stderr), (2, ""))
        first, second, bad, no_list, last, no_json = map(json.loads, result.stdout.split("\n")[:-1])
        alone = ["config", "tiny.json", "--set", "train.lr=0.5", "--set", "name=ä"]
        self.assertEqual(first["config"], json.loads(self.normscope(*alone).stdout))
        self.assertEqual([entry["config"]["train"]["lr"] for entry in (second, last)], [0.25, 0.1])
        alone = self.normscope("config", "tiny.json", "--set", "train.lr=-1", "--set", "model.n_head=5", code=2).stderr
        self.assertEqual(bad, {"error": alone.rstrip("\n")})
        self.assertEqual(len(alone.split("\n")), 3)
        self.assertIn('expected a list such as ["train.lr=0.01"]', no_list["error"])
        self.assertIn("[config] stdin: parse error at line 1, column 2", no_json["error"])



class Bench(CliTest):
    @unittest.skipUnless({"avx2", "fma"} <= cpu_flags(), "OpenBLAS has kernels for this processor alone")
    def test_openblas_that_does_not_know_the_processor_is_named_with_what_to_do(self):
        for kernels, is_named in (("Prescott", True), ("Haswell", False)):
            text = self.normscope("bench", self.config(), "--steps", "20", "--threads", "1",
                                  env=environment(OPENBLAS_CORETYPE=kernels, NORMSCOPE_ISA="avx2")).stdout
            self.assertEqual("Prescott) does not know this processor; for its faster kernels set "
                             "OPENBLAS_CORETYPE=HASWELL\n" in text, is_named, text)

    def test_json_has_its_names_and_they_agree(self):
        options = ("--steps", "20", "--threads", "1", "--set", "train.precision=bf16", "--json")
        result = json.loads(self.normscope("bench", self.config(), *options).stdout)
        self.assertEqual(set(result), {"sgemm_gflops", "step_ms", "tokens_per_s", "gflops", "share", "log_overhead",
                                       "threads",
                                       "precision", "peak_mb", "ops"})
        self.assertEqual((result["threads"], result["precision"]), (1, "bf16"))
        self.assertAlmostEqual(result["tokens_per_s"] * result["step_ms"] / 1e3, 4 * 16, places=6)
        self.assertAlmostEqual(result["share"], result["gflops"] / result["sgemm_gflops"], places=12)
        # 6 FLOPs a multiplied parameter and token, the tied matrix for the head; attention's unmasked half.
        multiplied = 2 * (48 * 16 + 16 * 16 + 2 * 64 * 16) + 65 * 16
        flops = (6 * multiplied + 6 * 2 * 16 * 17) * result["tokens_per_s"] / 1e9
        self.assertAlmostEqual(result["gflops"] / flops, 1, places=9)
        # The ops add up to the step, and products and attention share its arithmetic.
        ops = {op["op"]: op for op in result["ops"]}
        self.assertLessEqual({"norm", "linear", "attention", "optimiser"}, set(ops))
        self.assertEqual(list(ops)[-1], "rest")
        self.assertGreaterEqual(ops["rest"]["share"], 0)
        self.assertAlmostEqual(sum(op["share"] for op in ops.values()), 1, places=9)
        self.assertAlmostEqual(sum(op["ms"] for op in ops.values()) / result["step_ms"], 1, places=9)
        done = {name: op["ms"] * op["gflops"] for name, op in ops.items() if op["gflops"]}
        products = done["linear"] + done["linear, activation"]
        self.assertAlmostEqual(products / done["attention"] / (multiplied / (2 * 16 * 17)), 1, places=9)


if __name__ == "__main__":
    unittest.main()
