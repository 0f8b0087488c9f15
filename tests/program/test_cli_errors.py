#!/usr/bin/python3
"""Errors are one line `[where] what; ...` on stderr, with the exit code that belongs to them, and nothing
of a file's name or content reaches the terminal raw."""

import json
import os
import shlex
import shutil
import unittest
from pathlib import Path

import numpy as np
from cli import (LONG, PATIENCE, TEXT, TINY, CliTest, Run, environment, read_safetensors, with_metadata,
                 write_safetensors)

HOSTILE = "a\x1b[2J\x07\x7f\u009b\u202e"  # moves cursors, rings bells, turns text around
HUGE = " ".join(f"--set model.{key}" for key in ("n_layer=1024", "d_model=65536", "d_ff=65536", "n_head=64"))

# (exit code, arguments as a shell reads them, words of the one line that refuses them, which changes no file). The
# states of folders and files are those of Refusals.make_states(). Refusals of configs, texts and safetensors, which
# all commands share, are in test_config.cpp, test_json.cpp, test_corpus.cpp and test_safetensors.cpp.
REFUSALS = [
    # Commands.
    (2, "trian", "trian", "did you mean train?"),
    (2, "xyzzy", "xyzzy", "--help"),
    (2, "tiny.json", "did you mean normscope train tiny.json?"),
    (2, "sweep grid.json --jobs 2", "scripts/sweep.py"),
    (2, "train", "CONFIG"),
    (2, "train tiny.json more", "CONFIG"),
    (2, "eval", "RUN|FILE"),
    # Options.
    (2, "train tiny.json --output x", "--output", "did you mean --out?"),
    (2, "sample run --temprature 1", "did you mean --temperature?"),
    (2, "sample run --tokens 100", "unknown option --tokens", "did you mean --length?"),
    (2, "sample run --max_new_tokens=100", "did you mean --length?"),
    (2, "train tiny.json -z", "z", "--help"),
    (2, "train tiny.json ---x", "normscope train --help"),
    (2, "train tiny.json --threads 0", "--threads", "1", "1024"),
    (2, "train tiny.json --out", "out"),
    (2, "train tiny.json --out ''", "--out"),
    (2, "train tiny.json --out a --out b", "--out"),
    (2, "train tiny.json --quiet=false", "--quiet takes no value"),
    (2, "train tiny.json --set", "set", "missing an argument"),
    (2, "sample run --temperature 1e-400", "--temperature: got '1e-400'"),
    (2, "sample run --top-p 1.5", "--top-p"),
    (2, "probe tiny.json --seeds 0", "--seeds"),
    # Options and keys of other programs.
    (2, "train tiny.json --lr", "did you mean --set train.lr=VALUE?"),
    (2, "train tiny.json --train.steps=5", "did you mean --set train.steps=5?"),
    (2, "train tiny.json --n_embd=32", "did you mean --set model.d_model=32?"),
    (2, "train tiny.json --learning-rate=1", "did you mean --set train.lr=1?"),
    (2, "train tiny.json --dataset=x.txt", "did you mean --set data.path=x.txt?"),
    (2, "train tiny.json --set block_size=3", "did you mean model.context?"),
    # Configs.
    (2, f"train tiny.json --set name={100_000 * 'a'}", "name: got"),
    (2, "train tiny.json --set data.path=data/tinyshakespeare.txt", "scripts/get_tinyshakespeare.sh"),
    (2, "train .", "."),
    (2, "train deep", "there is no file deep; did you mean configs/deep.json?"),
    (2, "train broken.json", "broken.json: parse error at line 2, column"),
    (2, "train grid.json", "is a sweep", "scripts/sweep.py grid.json"),
    (2, "train child.json", "there is no file base.json; did you mean configs/base.json? (child.json)"),
    (2, "train runs/pre", "runs/pre: is a folder", "runs/pre/config.json"),
    (2, f"train tiny.json {HUGE} --out new", "[memory] this config needs about 393444.3 GiB"),
    (2, f"probe tiny.json {HUGE} --out new", "[memory] this config needs about 393444.3 GiB"),
    (2, "config --set model.norm=rmsnorm", "need a CONFIG"),
    (2, "config --origin", "need a CONFIG"),
    (2, "config --batch", "need a CONFIG"),
    (2, "config --schema tiny.json", "takes no CONFIG"),
    (2, "config tiny.json --batch --origin", "--batch prints no origins"),
    # Texts and prompts.
    (2, f"sample runs/pre --prompt '{os.fsdecode(b'a' + bytes([255]))}'", "byte 1"),
    (2, "sample runs/pre --prompt é", "no 'é' (U+00E9), only the 60 characters"),
    (2, "eval runs/pre --data unknown.txt", "Ω"),
    (2, "eval runs/pre --data short.txt", "short.txt"),
    (2, "eval runs/pre --data none.txt", "none.txt"),
    (2, "eval runs/no-validation", "no validation split", "--data"),
    (2, "eval runs/without-text", "gone.txt: No such file"),
    (2, "train --resume runs/without-text", "no such file", "--set data.path=FILE"),
    (1, "eval runs/other-text", "another text than", "changed.txt (hash "),
    (1, "train --resume runs/other-text", "another text than", "changed.txt (hash "),
    # Runs that are none.
    *((2, command, "runs: is no run", "name the folder of one run")
      for command in ("sample runs", "eval runs", "train --resume runs", "probe tiny.json --from runs")),
    *((2, command, "there is no run or file of this name; did you mean runs/pre?")
      for command in ("sample runs/pr", "eval runs/pr", "train --resume runs/pr", "train tiny.json --from runs/pr",
                      "probe tiny.json --from runs/pr --out new")),
    (2, "probe tiny.json --from none --out new", "there is no run or file of this name"),
    (2, "train tiny.json --out tiny.json", "tiny.json is a file"),
    # Folders that hold something: runs, and what other programs and persons have written.
    (2, "train tiny.json --out runs/pre --quiet", "--resume", "--overwrite", "--out DIR"),
    (2, "probe tiny.json --out probe --seeds 2", "probe/seed-1 holds a run already; start again with --overwrite, or"),
    *((2, f"{command} --out {folder}",
       "is no run of normscope; nothing was touched; choose another folder with --out DIR")
      for folder in ("hugging-face", "nothing", "by-hand", "logs-alone")
      for command in ("train tiny.json", "train tiny.json --overwrite", "train tiny.json --resume", "probe tiny.json",
                      "probe tiny.json --overwrite")),
    # A run that goes on with other keys, and one that holds another run's checkpoint.
    (2, "train tiny.json --out runs/pre --resume --set train.seed=9 --set log.every=3",
     "the config differs from runs/pre/config.json in train.seed (1 -> 9); set it back"),
    (2, "train tiny.json --out runs/swapped --resume",
     "runs/swapped/checkpoint.safetensors: is the checkpoint of another config, which differs in train.seed (7 -> 1), "
     "train.lr (0.5 -> 0.001)"),
    (2, "train tiny.json --out runs/pre --resume --overwrite", "--resume", "--overwrite"),
    # Weights of another run.
    (2, "train tiny.json --out new --from runs/pre --set data.path=accents.txt", "the model has no 'é' (U+00E9)"),
    (1, "train tiny.json --out new --from runs/pre --set model.d_model=32", "the model needs"),
    (2, "train tiny.json --out new --from runs/pre --moments --set train.optimizer=sgd",
     "are adamw's, and the config has sgd"),
    (2, "train tiny.json --out new --from runs/pre --resume", "give one of them"),
    (2, "train tiny.json --out new --moments", "name it with --from RUN"),
    (2, "train tiny.json --out new --from runs/bare --moments", "no checkpoint.safetensors"),
    *((1, f"probe tiny.json --out new --from {name}.safetensors", tensor)
      for name, tensor in (("missing", "final_norm.bias"), ("extra", "head.weight"),
                           ("misshapen", "embed.position.weight"))),
    (2, "eval runs/kept --step 5", "it has those of steps 0, 1, 2, 4, 7"),
    (2, "probe tiny.json --step 7", "name it with --from RUN"),
    # Inputs that would be replaced.
    (2, "train runs/pre/config.json --out runs/pre --overwrite", "its config.json would be replaced"),
    (2, "train tiny.json --out runs/pre --overwrite --set data.path=runs/pre/sample.txt", "its sample.txt would be"),
    (2, "train tiny.json --out runs/pre --overwrite --from runs/pre", "its model.safetensors would be"),
    (2, "train tiny.json --out runs/kept --overwrite --from runs/kept/weights/step_8.safetensors", "is an input"),
    (2, "probe probe/seed-3/config.json --out probe --overwrite --set train.seed=1",
     "probe/seed-3: its config.json would be replaced"),
    # explain.
    (2, "explain --norm rmsnorm --bias 1,2,3,4", "--bias: rmsnorm has none"),
    (2, "explain --gain 1,2", "--gain, --bias: got 2 numbers; expected 1 or 4"),
    (2, "explain --matrix '1,2;3'", "--matrix: got '1,2;3'; expected numbers up to 1e+150, rows of one length"),
    (2, "explain --vector '1,2;3,4'", "--vector: got '1,2;3,4'"),
    (2, "explain --vector 1e200,1", "expected numbers up to 1e+150"),
    (2, "explain tiny.json --norm dyt", "--norm has the default eps, groups and alpha, not CONFIG's"),
    (2, "explain --norm layrnorm", "did you mean layernorm?"),
    (2, "explain --placement pre-norm", "did you mean pre?"),
    (2, "explain --placement mixx", "did you mean mix?"),
    # Names of files, options, keys and tensors, and text of files, with control characters: they are spelled out.
    (2, f"'{HOSTILE}'"),
    (2, f"train tiny.json '--{HOSTILE}'"),
    (2, f"train tiny.json --set '{HOSTILE}=1'"),
    (2, f"train tiny.json --set 'name={HOSTILE}'"),
    (2, f"train '{HOSTILE}.json'"),
    (1, f"sample '{HOSTILE}.json'"),
    (2, f"eval runs/pre --data '{HOSTILE}'"),
    (1, f"probe tiny.json --out new --from '{HOSTILE}.safetensors'"),
]
FILES = {
    "configs/deep.json": "{}", "configs/base.json": "{}", "child.json": '{"extends": "base.json"}',
    "broken.json": '{\n  "train": { "steps": 3,, }\n}\n', f"{HOSTILE}.json": f'{{"name": "{HOSTILE}"',
    "grid.json": '{"base": "tiny.json", "seeds": [1], "grid": {"train.lr": [1, 2]}}',
    "unknown.txt": "Ω" * 10, "short.txt": "a", "accents.txt": TEXT + "é", "gone.txt": TEXT, "changed.txt": TEXT,
    "logs-alone/metrics.csv": "my own numbers", "logs-alone/seed-1/metrics.csv": "my own numbers"}
# Configs of folders that are no runs; config.json and model.safetensors are Hugging Face's names too.
FOREIGN = {"hugging-face": '{"architectures": ["GPT2LMHeadModel"]}', "nothing": "", "by-hand": json.dumps(TINY)}


class Refusals(CliTest):
    def make_states(self):
        for name, content in FILES.items():
            self.write(name, content)
        for name, config in FOREIGN.items():
            for folder in (name, f"{name}/seed-1"):
                self.write(f"{folder}/config.json", config)
                self.write(f"{folder}/model.safetensors", "WEIGHTS")

        other = self.train("runs/other", {"train": {"seed": 7, "lr": 0.5, "steps": 40}, "log": {"every": 5}})
        self.train("runs/no-validation", {"data": {"val_fraction": 0}})
        for name, text in (("without-text", "gone.txt"), ("other-text", "changed.txt")):
            self.train(f"runs/{name}", {"data": {"path": text}})
        os.remove(self.path("gone.txt"))
        self.write("changed.txt", TEXT + "x")
        self.train("runs/kept", {"checkpoint": {"keep_every": 7}})
        pre = self.train("runs/pre")
        for name in ("bare", "swapped"):
            shutil.copytree(pre.path, self.path("runs", name))
        os.remove(self.path("runs/bare/checkpoint.safetensors"))
        shutil.copy(other.file("checkpoint.safetensors"), self.path("runs/swapped"))
        self.normscope("probe", "tiny.json", "--out", "probe", "--seeds", "3")

        tensors = pre.tensors()
        for name, wrong in (("missing", {name: x for name, x in tensors.items() if name != "final_norm.bias"}),
                            ("extra", tensors | {"head.weight": tensors["embed.token.weight"]}),
                            ("misshapen", tensors | {"embed.position.weight": np.zeros((8, 16))}),
                            (HOSTILE, {HOSTILE: np.zeros(3)})):
            write_safetensors(self.path(f"{name}.safetensors"), wrong)

    def test_refusals(self):
        self.make_states()
        for code, arguments, *words in REFUSALS:
            with self.subTest(arguments[:200]):
                self.refused(*shlex.split(arguments), code=code, says=words)

    def test_each_unknown_option_has_a_line(self):
        self.refused("train", self.config(), "--block_size=64", "--learning_rate", "1e-3", lines=2,
                     says=["--block_size", "--learning_rate"])


class CommandLine(CliTest):
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

    def test_options_come_in_any_order_and_quiet_silences_stdout(self):
        config = self.config({"train": {"steps": 2}})
        result = self.normscope("train", "--quiet", "--set", "train.seed=3", config, "--out=a,b")
        self.assertEqual(result.stdout, "")
        self.assertTrue(os.path.isfile(self.path("a,b", "summary.json")), "a comma is a letter like others")

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

    def test_a_config_may_come_through_a_pipe(self):
        config = Path(self.path(self.config())).read_text(encoding="utf-8")
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

    def test_a_home_folder_is_expanded(self):
        self.normscope("train", self.config(), "--out=~/runs/pre", env=environment(HOME=self.folder))
        self.assertEqual(os.listdir(self.path("runs")), ["pre"])
        self.refused("train", "tiny.json", "--set", "data.path=~/none.txt", env=environment(HOME="/nowhere"),
                     says=["no such file: /nowhere/none.txt"])

    def test_control_characters_of_names_are_spelled_out(self):
        out = f"{HOSTILE}/run"
        output = self.normscope("train", self.config({"train": {"steps": 2}}), "--out", out).stdout
        output += self.normscope("train", "tiny.json", "--out", out, "--resume").stdout
        output += self.normscope("probe", "tiny.json", "--out", f"{HOSTILE}/probe").stdout
        self.write(f"{HOSTILE}/here.json", json.dumps(TINY))
        output += self.normscope("config", "--origin", f"{HOSTILE}/here.json").stdout
        self.write(f"{HOSTILE}/text.txt", TEXT)
        resolved = self.normscope("config", f"{HOSTILE}/here.json").stdout
        self.assertEqual(json.loads(resolved)["data"]["path"], self.path(HOSTILE, "text.txt"))
        self.assert_no_controls(output + resolved)


class Memory(CliTest):
    def test_a_model_file_cannot_claim_memory(self):
        """Its shapes are compared with its tensors before a model of that size is made."""
        run = self.train("run")
        huge = {**run.json("config.json")["model"], "d_model": 2048, "d_ff": 8192, "n_layer": 24, "n_head": 16}
        config = json.dumps({**run.json("config.json"), "model": huge})
        self.write("huge.safetensors", with_metadata(run.bytes("model.safetensors"), {"config": config}))
        wide = self.config({"model": {"d_model": 512, "n_layer": 8}}, name="wide.json")
        for *command, file in (("sample", "huge.safetensors"), ("eval", "huge.safetensors"),
                               ("probe", wide, "--out", "probe", "--from", "run/model.safetensors")):
            memory, message = self.peak_rss_mb(*command, file, code=1)
            self.assertRegex(message, rf"^\[safetensors\] {file}: .*; the model needs .*\n$")
            self.assertLess(memory, 100)


class Outputs(CliTest):
    """What a command writes is none of its inputs, under whatever name, no other run's file, and nothing unknown."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.train("run", {"checkpoint": {"keep_every": 20}})
        self.write("child.json", json.dumps({"extends": "tiny.json", "data": {"val_path": "val.txt"}}))
        self.write("val.txt", TEXT[:500])
        shutil.copy(self.run_folder.file("model.safetensors"), self.path("w"))
        self.inputs = ("child.json", "tiny.json", "text.txt", "val.txt", "w")

    def test_a_dump_replaces_no_input_and_no_runs_file(self):
        self.normscope("probe", "child.json", "--out", "probe")
        outputs = [*self.inputs, *(path for path in self.files() if os.path.dirname(path) != self.folder)]
        outputs += [f"{folder}/best.safetensors" for folder in ("probe/seed-1", "probe/seed-2")]  # not yet there
        for output in outputs[:]:
            os.symlink(output, self.path(f"{len(outputs)}"))
            outputs.append(f"{len(outputs)}")
        for source in self.inputs:
            os.link(self.path(source), self.path(f"hard-{source}"))
            outputs.append(f"hard-{source}")
        for output in outputs:
            self.refused("probe", "child.json", "--from", "w", "--out", "probe", "--overwrite", "--seeds", "2",
                         "--dump", output, says=["; name another file"])

    def test_a_run_replaces_no_input(self):
        for name in ("sample.txt", "params.csv"):
            kept = self.run_folder.bytes(name)
            for source in self.inputs:
                os.remove(self.run_folder.file(name))
                os.symlink(f"../{source}", self.run_folder.file(name))
                for options in (["--overwrite", "--from", "w"], *([["--resume"]] if source != "w" else [])):
                    self.refused("train", "child.json", "--out", "run", *options, says=[f"its {name} would be"])
            os.remove(self.run_folder.file(name))
            self.write(f"run/{name}", kept)

    def test_what_is_replaced_keeps_its_link_and_its_mode(self):
        self.write("notes.txt", "mine")
        os.chmod(self.path("notes.txt"), 0o600)
        os.symlink("notes.txt", self.path("link"))
        self.refused("probe", "tiny.json", "--out", "probe", "--dump", "link", says=["--overwrite"])
        self.normscope("probe", "tiny.json", "--out", "probe", "--dump", "link", "--overwrite")
        read_safetensors(self.path("notes.txt"))
        self.assertEqual(os.stat(self.path("notes.txt")).st_mode & 0o777, 0o600)
        self.assertTrue(os.path.islink(self.path("link")))


if __name__ == "__main__":
    unittest.main()
