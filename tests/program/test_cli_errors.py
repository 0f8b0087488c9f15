#!/usr/bin/python3
"""Errors are one line `[where] what; ...` on stderr, with the exit code that belongs to them, and nothing
of a file's name or content reaches the terminal raw."""

import json
import os
import shutil
import unittest
from pathlib import Path

import numpy as np
from cli import (LONG, PATIENCE, TEXT, TINY, CliTest, Run, environment, read_safetensors, with_metadata,
                 write_safetensors)

HOSTILE = "a\x1b[2J\x07\x7f\u009b\u202e"  # moves cursors, rings bells, turns text around


# Refused arguments, and words of the line that refuses them. All refusals of configs, texts and safetensors are in
# test_config.cpp, test_json.cpp, test_corpus.cpp and test_safetensors.cpp.
TRAIN = ("train", "tiny.json")
REFUSALS = [
    (["trian"], ["trian", "did you mean train?"]),
    (["xyzzy"], ["xyzzy", "--help"]),
    (["tiny.json"], ["did you mean normscope train tiny.json?"]),
    (["sweep", "grid.json", "--jobs", "2"], ["scripts/sweep.py"]),
    (["train"], ["CONFIG"]),
    ([*TRAIN, "more"], ["CONFIG"]),
    (["eval"], ["RUN|FILE"]),
    ([*TRAIN, "--output", "x"], ["--output", "did you mean --out?"]),
    (["sample", "run", "--temprature", "1"], ["did you mean --temperature?"]),
    (["sample", "run", "--tokens", "100"], ["unknown option --tokens", "did you mean --length?"]),
    (["sample", "run", "--max_new_tokens=100"], ["did you mean --length?"]),
    ([*TRAIN, "-z"], ["z", "--help"]),
    ([*TRAIN, "---x"], ["normscope train --help"]),
    ([*TRAIN, "--threads", "0"], ["--threads", "1", "1024"]),
    ([*TRAIN, "--out"], ["out"]),
    ([*TRAIN, "--out", ""], ["--out"]),
    ([*TRAIN, "--out", "a", "--out", "b"], ["--out"]),
    ([*TRAIN, "--quiet=false"], ["--quiet takes no value"]),
    ([*TRAIN, "--set"], ["set", "missing an argument"]),
    (["sample", "run", "--temperature", "1e-400"], ["--temperature: got '1e-400'"]),
    (["sample", "run", "--top-p", "1.5"], ["--top-p"]),
    (["probe", "tiny.json", "--seeds", "0"], ["--seeds"]),
    # Options and keys of other programs.
    ([*TRAIN, "--lr"], ["did you mean --set train.lr=VALUE?"]),
    ([*TRAIN, "--train.steps=5"], ["did you mean --set train.steps=5?"]),
    ([*TRAIN, "--n_embd=32"], ["did you mean --set model.d_model=32?"]),
    ([*TRAIN, "--learning-rate=1"], ["did you mean --set train.lr=1?"]),
    ([*TRAIN, "--dataset=x.txt"], ["did you mean --set data.path=x.txt?"]),
    ([*TRAIN, "--set", "block_size=3"], ["did you mean model.context?"]),
    # Configs.
    ([*TRAIN, "--set", "name=" + 100_000 * "a"], ["name: got"]),
    ([*TRAIN, "--set", "data.path=data/tinyshakespeare.txt"], ["scripts/get_tinyshakespeare.sh"]),
    (["train", "."], ["."]),
    (["train", "deep"], ["there is no file deep; did you mean configs/deep.json?"]),
    (["train", "broken.json"], ["broken.json: parse error at line 2, column"]),
    (["train", "grid.json"], ["is a sweep", "scripts/sweep.py grid.json"]),
    (["train", "child.json"], ["there is no file base.json; did you mean configs/base.json? (child.json)"]),
    (["config", "--set", "model.norm=rmsnorm"], ["need a CONFIG"]),
    (["config", "--origin"], ["need a CONFIG"]),
    (["config", "--batch"], ["need a CONFIG"]),
    (["config", "--schema", "tiny.json"], ["takes no CONFIG"]),
    (["config", "tiny.json", "--batch", "--origin"], ["--batch prints no origins"]),
    # Runs, texts and prompts.
    ([*TRAIN, "--resume", "--overwrite"], ["--resume", "--overwrite"]),
    ([*TRAIN, "--out", "tiny.json"], ["tiny.json is a file"]),
    *((command, ["runs: is no run", "name the folder of one run"])
      for command in (["sample", "runs"], ["eval", "runs"], ["train", "--resume", "runs"],
                      ["probe", "tiny.json", "--from", "runs"])),
    *((command, ["there is no run or file of this name; did you mean runs/pre?"])
      for command in (["sample", "runs/pr"], ["eval", "runs/pr"], ["train", "--resume", "runs/pr"])),
    (["sample", "runs/pre", "--prompt", os.fsdecode(b"a\xff")], ["byte 1"]),
    (["eval", "runs/pre", "--data", "unknown.txt"], ["Ω"]),
    (["eval", "runs/pre", "--data", "short.txt"], ["short.txt"]),
    (["eval", "runs/pre", "--data", "none.txt"], ["none.txt"]),
    # explain.
    (["explain", "--norm", "rmsnorm", "--bias", "1,2,3,4"], ["--bias: rmsnorm has none"]),
    (["explain", "--gain", "1,2"], ["--gain, --bias: got 2 numbers; expected 1 or 4"]),
    (["explain", "--matrix", "1,2;3"], ["--matrix: got '1,2;3'; expected numbers up to 1e+150, rows of one length"]),
    (["explain", "--vector", "1,2;3,4"], ["--vector: got '1,2;3,4'"]),
    (["explain", "--vector", "1e200,1"], ["expected numbers up to 1e+150"]),
    (["explain", "tiny.json", "--norm", "dyt"], ["--norm has the default eps, groups and alpha, not CONFIG's"]),
    (["explain", "--norm", "layrnorm"], ["did you mean layernorm?"]),
    (["explain", "--placement", "pre-norm"], ["did you mean pre?"]),
    (["explain", "--placement", "mixx"], ["did you mean mix?"]),
]


class CommandLine(CliTest):
    def test_refusals(self):
        self.train("runs/pre")
        os.makedirs(self.path("configs"))
        for name, content in (
                ("configs/deep.json", "{}"), ("configs/base.json", "{}"), ("child.json", '{"extends": "base.json"}'),
                ("broken.json", '{\n  "train": { "steps": 3,, }\n}\n'),
                ("unknown.txt", "Ω" * 10), ("short.txt", "a"),
                ("grid.json", '{"base": "tiny.json", "seeds": [1], "grid": {"train.lr": [1, 2]}}')):
            self.write(name, content)
        for arguments, says in REFUSALS:
            with self.subTest(arguments):
                self.refused(*arguments, says=says)

    def test_each_unknown_option_and_each_wrong_value_is_answered(self):
        messages = self.call("train", self.config(), "--block_size=64", "--learning_rate", "1e-3").stderr
        self.assertEqual(messages.count("unknown option"), 2)
        config = self.config({"model": {"n_head": 5, "d_model": 64, "widht": 3}, "train": {"steps": 0}})
        self.refused("train", config, lines=3, says=["model.widht: unknown key", "train.steps: ", "try 4 or 8"])

    def test_help_and_version_everywhere(self):
        self.assertIn("usage", self.normscope("--help").stdout)
        self.assertIn("usage", self.normscope(code=2).stderr)
        version = self.normscope("--version").stdout
        self.assertRegex(version,
                         r"^normscope \d+\.\d+\.\d+ \(commit ([0-9a-f]{7,}(-dirty)?|unknown)\), .*OpenBLAS .*\n$")
        for command in ("train", "probe", "sample", "eval", "bench", "config"):
            self.assertIn(f"normscope {command}", self.normscope(command, "--help").stdout)
            self.assertIn("--help", self.normscope(command, "no-such-file", "--help").stdout)
            self.assertEqual(self.normscope(command, "--version").stdout, version)

    def test_options_come_in_any_order(self):
        config = self.config({"train": {"steps": 2}})
        self.normscope("train", "--quiet", "--set", "train.seed=3", config, "--out=a,b")
        self.assertTrue(os.path.isfile(self.path("a,b", "summary.json")), "a comma is a letter like others")

    def test_quiet_silences_stdout_but_not_errors(self):
        result = self.normscope("train", self.config(), "--out", "run", "--quiet")
        self.assertEqual(result.stdout, "")
        self.refused("train", self.config(), "--out", "run", "--quiet", says=["run"])

    def test_a_pipe_gets_whole_plain_lines(self):
        result = self.normscope("train", self.config(), "--out", "run")
        self.assert_no_controls(result.stdout)
        first = result.stdout.splitlines()[0]
        for word in ("7,520 parameters", "64 tokens", "1 thread", "25 steps"):
            self.assertIn(word, first)

    def test_output_that_cannot_be_written_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = self.normscope("config", code=1, stdout=full)
        self.assertIn("[output]", result.stderr)

    def test_a_huge_model_is_refused_with_its_memory(self):
        huge = {"model": {"n_layer": 1024, "d_model": 65536, "d_ff": 65536, "n_head": 64, "context": 1024}}
        result = self.refused("train", self.config(huge), "--out", "huge", says=["memory"])
        self.assertRegex(result.stderr, r"\d+(\.\d+)? [GTP]i?B")
        self.assertFalse(os.path.exists(self.path("huge")))
        self.refused("probe", self.config(huge), says=["memory"])

    def test_a_config_may_come_through_a_pipe(self):
        with open(self.path(self.config()), encoding="utf-8") as file:
            config = file.read()
        self.normscope("train", "tiny.json", "--out", "file", "--set", "name=run")
        os.mkfifo(self.path("pipe"))
        process = self.start("train", "pipe", "--out", "out-0", "--set", "name=run")
        self.write("pipe", config)
        self.assertEqual((process.communicate(timeout=PATIENCE)[1], process.returncode), ("", 0))
        for i, name in enumerate(("/dev/stdin", "/proc/self/fd/0"), start=1):
            self.normscope("train", name, "--out", f"out-{i}", "--set", "name=run", input=config)
        for i in range(3):
            self.assertEqual(Run(self.path(f"out-{i}")).json("config.json"), Run(self.path("file")).json("config.json"))


class Unusual(CliTest):
    """Odd but sound input is accepted."""

    def test_names_with_blanks_and_accents(self):
        os.mkdir(self.path("a b"))
        self.write("a b/le thé.txt", TEXT)
        config = json.dumps(TINY | {"data": {"path": "le thé.txt"}, "train": {"steps": 2, "batch_size": 2}})
        self.write("a b/tröst.json", "\ufeff" + config.replace(",", ",\r\n"))  # as editors on Windows write it
        run = self.path("a b", "läufe", "1")
        self.normscope("train", "a b/tröst.json", "--out", run)
        self.assertEqual(Run(run).json("config.json")["name"], "tröst")
        self.assertEqual(len(self.normscope("sample", run, "--length", "9").stdout.rstrip("\n")), 9)
        self.assertIn("is finished", self.normscope("train", "a b/tröst.json", "--out", run, "--resume").stdout)
        self.assertIn("model", self.normscope("eval", run, "--data", "a b/le thé.txt").stdout)
        self.assertIn("tröst", self.normscope("config", "a b/tröst.json", "--origin").stdout)

    def test_a_vocabulary_of_one(self):
        self.write("text.txt", "a" * 400)
        run = self.train("run", {"train": {"steps": 3}})
        self.assertEqual(run.summary["vocab"], 1)
        self.assertEqual(run.summary["final_val_loss"], 0)  # one character is no surprise
        self.assertEqual(self.normscope("sample", "run", "--length", "5").stdout, "aaaaa\n")
        self.assertIn("0.000000", self.normscope("eval", "run").stdout)

    def test_a_large_vocabulary(self):
        size = 100_000 if LONG else 20_000
        self.write("text.txt", "".join(map(chr, range(0x10000, 0x10000 + size))))
        run = self.train("run", {"model": {"n_layer": 1, "d_model": 2, "n_head": 1, "context": 4},
                                 "data": {"val_fraction": 0.001},
                                 "train": {"steps": 1, "batch_size": 1}, "eval": {"batches": 1, "every": 0}})
        self.assertEqual(run.summary["vocab"], size)
        self.assertAlmostEqual(run.summary["final_train_loss"], np.log(size), delta=0.1)
        prompt = chr(0x10000 + size - 1)
        self.assertTrue(self.normscope("sample", "run", "--prompt", prompt, "--length", "3").stdout.startswith(prompt))
        self.refused("sample", "run", "--prompt", "é", says=["'é' (U+00E9)", str(size)])


class Files(CliTest):
    def test_weights_must_fit_by_name_and_shape(self):
        run = self.train("run")
        tensors, _ = read_safetensors(run.file("model.safetensors"))
        variants = {
            "missing": {name: t for name, t in tensors.items() if name != "final_norm.bias"},
            "extra": tensors | {"head.weight": tensors["embed.token.weight"]},
            "misshapen": tensors | {"embed.position.weight": np.zeros((8, 16))},
        }
        named = {"missing": "final_norm.bias", "extra": "head.weight", "misshapen": "embed.position.weight"}
        for name, wrong in variants.items():
            write_safetensors(self.path(f"{name}.safetensors"), wrong)
            self.refused("probe", "tiny.json", "--from", f"{name}.safetensors", "--out", name, code=1,
                         says=[named[name]])

    def test_a_model_file_cannot_claim_memory(self):
        """Its shapes are compared with its tensors before a model of that size is made."""
        run = self.train("run")
        huge = {**run.json("config.json")["model"], "d_model": 2048, "d_ff": 8192, "n_layer": 24, "n_head": 16}
        config = json.dumps({**run.json("config.json"), "model": huge})
        self.write("huge.safetensors", with_metadata(run.bytes("model.safetensors"), {"config": config}))
        for command in ("sample", "eval"):
            memory, message = self.peak_rss_mb(command, "huge.safetensors", code=1)
            self.assertRegex(message, r"^\[safetensors\] huge\.safetensors: .*; the model needs .*\n$")
            self.assertLess(memory, 100)
        wide = self.config({"model": {"d_model": 512, "n_layer": 8}}, name="wide.json")
        memory, message = self.peak_rss_mb("probe", wide, "--from", "run/model.safetensors", "--out", "probe", code=1)
        self.assertRegex(message, r"^\[safetensors\] run/model\.safetensors: .*; the model needs .*\n$")
        self.assertLess(memory, 100)


class Outputs(CliTest):
    """What a command writes is none of its inputs, under whatever name, no other run's file, and nothing unknown."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.train("run")
        self.write("child.json", json.dumps({"extends": "tiny.json", "data": {"val_path": "val.txt"}}))
        self.write("val.txt", TEXT[:500])
        shutil.copy(self.run_folder.file("model.safetensors"), self.path("w"))
        self.inputs = ("child.json", "tiny.json", "text.txt", "val.txt", "w")

    def test_a_dump_replaces_no_input_and_no_runs_file(self):
        self.normscope("probe", "child.json", "--out", "probe")
        outputs = [*self.inputs, *(str(path) for path in self.files() if path.parent != Path(self.folder))]
        outputs += [f"{folder}/best.safetensors" for folder in ("probe/seed-1", "probe/seed-2")]  # not yet there
        for output in outputs[:]:
            os.symlink(output, self.path(f"{len(outputs)}"))
            outputs.append(f"{len(outputs)}")
        for source in self.inputs:
            os.link(self.path(source), self.path(f"hard-{source}"))
            outputs.append(f"hard-{source}")
        for output in outputs:
            self.refused_untouched("probe", "child.json", "--from", "w", "--out", "probe", "--overwrite", "--seeds",
                                   "2", "--dump", output, says=["; name another file"])

    def test_a_run_replaces_no_input(self):
        for name in ("sample.txt", "params.csv"):
            kept = self.run_folder.bytes(name)
            for source in self.inputs:
                os.remove(self.run_folder.file(name))
                os.symlink(f"../{source}", self.run_folder.file(name))
                for options in (["--overwrite", "--from", "w"], *([["--resume"]] if source != "w" else [])):
                    self.refused_untouched("train", "child.json", "--out", "run", *options,
                                           says=[f"its {name} would be"])
            os.remove(self.run_folder.file(name))
            self.write(f"run/{name}", kept)
        for arguments in (["run/config.json"], ["tiny.json", "--set", "data.path=run/sample.txt"],
                          ["tiny.json", "--from", "run"]):
            self.refused_untouched("train", *arguments, "--out", "run", "--overwrite", says=["run: its "])
        self.normscope("probe", "child.json", "--out", "probe", "--seeds", "3")
        self.refused_untouched("probe", "probe/seed-3/config.json", "--set", "train.seed=1", "--out", "probe",
                               "--overwrite", says=["seed-3: its config.json would be replaced"])

    def test_what_is_replaced_keeps_its_link_and_its_mode(self):
        self.write("notes.txt", "mine")
        os.chmod(self.path("notes.txt"), 0o600)
        os.symlink("notes.txt", self.path("link"))
        self.refused_untouched("probe", "tiny.json", "--out", "probe", "--dump", "link", says=["--overwrite"])
        self.normscope("probe", "tiny.json", "--out", "probe", "--dump", "link", "--overwrite")
        read_safetensors(self.path("notes.txt"))
        self.assertEqual(os.stat(self.path("notes.txt")).st_mode & 0o777, 0o600)
        self.assertTrue(os.path.islink(self.path("link")))


class NothingRaw(CliTest):
    """Control characters of names and values are spelled out, never sent."""

    def test_in_errors(self):
        """All errors leave by one door: names of files, options and keys, text of files, names of tensors are as
        good."""
        self.train("run", {"train": {"steps": 2}})
        os.mkdir(self.path(HOSTILE))
        self.write(f"{HOSTILE}/bad.json", f'{{"name": "{HOSTILE}"')
        write_safetensors(self.path(HOSTILE, "other.safetensors"), {HOSTILE: np.zeros(3)})
        for arguments in ((HOSTILE,), ("train", "tiny.json", f"--{HOSTILE}"),
                          ("train", "tiny.json", "--set", f"{HOSTILE}=1"),
                          ("train", "tiny.json", "--set", f"name={HOSTILE}"), ("train", f"{HOSTILE}/bad.json"),
                          ("sample", f"{HOSTILE}/bad.json"), ("eval", "run", "--data", HOSTILE),
                          ("probe", "tiny.json", "--from", f"{HOSTILE}/other.safetensors", "--out", "q")):
            result = self.call(*arguments)
            self.assertIn(result.returncode, (1, 2), arguments)
            self.assert_no_controls(result.stderr + result.stdout)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_a_home_folder_is_expanded(self):
        self.normscope("train", self.config(), "--out=~/runs/pre", env=environment(HOME=self.folder))
        self.assertEqual(os.listdir(self.path("runs")), ["pre"])
        moved = self.call("train", "tiny.json", "--set", "data.path=~/none.txt", env=environment(HOME="/nowhere"))
        self.assertIn("no such file: /nowhere/none.txt", moved.stderr)

    def test_in_what_succeeds(self):
        out = f"{HOSTILE}/run"
        os.mkdir(self.path(HOSTILE))
        output = self.normscope("train", self.config({"train": {"steps": 2}}), "--out", out).stdout
        output += self.normscope("train", "tiny.json", "--out", out, "--resume").stdout
        output += self.normscope("probe", "tiny.json", "--out", f"{HOSTILE}/probe").stdout
        self.write(f"{HOSTILE}/here.json", json.dumps(TINY))
        output += self.normscope("config", "--origin", f"{HOSTILE}/here.json").stdout
        self.write(f"{HOSTILE}/text.txt", TEXT)
        resolved = self.normscope("config", f"{HOSTILE}/here.json").stdout
        self.assertEqual(json.loads(resolved)["data"]["path"], self.path(HOSTILE, "text.txt"))
        self.assert_no_controls(output + resolved)


if __name__ == "__main__":
    unittest.main()
