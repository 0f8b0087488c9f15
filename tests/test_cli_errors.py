#!/usr/bin/python3
"""What is wrong is said in one line `[where] what; ...` on stderr, with the exit code that belongs to it, and nothing
of a file's name or content reaches the terminal raw."""

import gzip
import json
import os
import struct
import subprocess
import unittest

import numpy as np
from cli import (BINARY, TEXT, TINY, CliTest, Run, environment, read_safetensors, with_metadata,
                 write_safetensors)

HOSTILE = "a\x1b[2J\x07\x7f\u009b\u202e"  # moves cursors, rings bells, turns text around


class CommandLine(CliTest):
    def test_help_and_version_everywhere(self):
        self.assertIn("usage", self.normscope("--help").stdout)
        version = self.normscope("--version").stdout
        self.assertRegex(version, r"^normscope \d+\.\d+\.\d+ \(commit ([0-9a-f]{7,}(-dirty)?|unknown)\), .*OpenBLAS .*\n$")
        for command in ("train", "probe", "sample", "eval", "bench", "config"):
            self.assertIn(f"normscope {command}", self.normscope(command, "--help").stdout)
            self.assertIn("--help", self.normscope(command, "no-such-file", "--help").stdout)
            self.assertEqual(self.normscope(command, "--version").stdout, version)

    def test_no_command_shows_the_usage(self):
        self.assertIn("usage", self.normscope(code=2).stderr)

    def test_unknown_commands_and_options_name_the_nearest(self):
        self.refused("trian", says=["trian", "did you mean train?"])
        self.refused("conf", says=["did you mean config?"])
        self.refused("xyzzy", says=["xyzzy", "--help"])
        self.refused("train", self.config(), "--output", "x", says=["--output", "did you mean --out?"])
        self.refused("train", "--treads=2", self.config(), says=["--treads", "did you mean --threads?"])
        self.refused("sample", "run", "--temprature", "1", says=["did you mean --temperature?"])
        self.refused("train", self.config(), "-z", says=["z", "--help"])

    def test_missing_and_wrong_values(self):
        self.refused("train", self.config(), "--threads", "0", says=["--threads", "1", "1024"])
        self.refused("train", self.config(), "--threads", "two", says=["'two'"])
        self.refused("train", self.config(), "--threads", "2.5", says=["'2.5'"])
        self.refused("train", self.config(), "--out", says=["out"])
        self.refused("train", self.config(), "--out", "", says=["--out"])
        self.refused("train", self.config(), "--out", "a", "--out", "b", says=["--out"])
        self.refused("train", self.config(), "--quiet=maybe", says=["maybe"])
        self.refused("train", self.config(), "--quiet=false", says=["--quiet takes no value"])
        self.refused("sample", "run", "--temperature", "nan", says=["--temperature"])
        self.refused("sample", "run", "--top-p", "1.5", says=["--top-p"])
        self.refused("sample", "run", "--length", "-1", says=["--length"])
        self.refused("probe", self.config(), "--seeds", "0", says=["--seeds"])

    def test_a_wrong_number_of_arguments(self):
        self.refused("train", says=["CONFIG"])
        self.refused("train", self.config(), "more", says=["CONFIG"])
        self.refused("eval", says=["RUN|FILE"])

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
            result = subprocess.run([BINARY, "config"], stdout=full, stderr=subprocess.PIPE, env=environment(),
                                    text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("[output]", result.stderr)


class OtherHabits(CliTest):
    """Options and keys as other programs have them are answered with ours."""

    FOREIGN = {"--lr=1": "--set train.lr=1?", "--lr": "--set train.lr=VALUE?", "--train.steps=5": "--set train.steps=5?",
               "--n_embd=32": "--set model.d_model=32?", "--learning-rate=1": "--set train.lr=1?", "--bptt=35": "--set model.context=35?",
               "--num_train_epochs=3": "--set train.steps=3?", "--per_device_train_batch_size=8": "--set train.batch_size=8?",
               "--dtype=bfloat16": "--set train.precision=bfloat16?", "--hidden_size=64": "--set model.d_model=64?",
               "--dataset=x.txt": "--set data.path=x.txt?", "--log-interval=5": "--set log.every=5?", "--overwite": "--overwrite?",
               "train.steps=5": "--set train.steps=5?"}

    def test_first_wrong_commands_of_strangers_lead_to_ours(self):
        for given, meant in self.FOREIGN.items():
            with self.subTest(given):
                self.refused("train", self.config(), given, says=[f"did you mean {meant}"])
        said = self.call("train", self.config(), "--block_size=64", "--learning_rate", "1e-3").stderr
        self.assertEqual(said.count("unknown option"), 2, "each is answered")
        for wrong, right in (("prenorm", "pre"), ("pots", "post")):
            self.refused("train", self.config(), "--set", f"model.norm_placement={wrong}", says=["expected pre | post"])

    def test_a_config_where_a_command_should_be_or_without_its_folder(self):
        self.refused("tiny.json", says=["did you mean normscope train tiny.json?"])
        os.makedirs(self.path("configs"))
        self.write("configs/deep.json", "{}")
        for given in ("deep", "deep.json", "configs/deep"):
            self.refused("train", given, says=[f"there is no file {given}; did you mean configs/deep.json?"])

    def test_keys_of_other_programs_lead_to_ours(self):
        for other, ours in (("block_size", "model.context"), ("model.n_embd", "model.d_model"),
                            ("train.learning_rate", "train.lr"), ("num_layers", "model.n_layer")):
            self.refused("train", self.config(), "--set", f"{other}=3", says=[f"did you mean {ours}?"])

    def test_options_that_are_none_and_values_that_lack(self):
        self.refused("train", self.config(), "-s", says=["unknown option -s"])
        self.refused("train", self.config(), "--set", says=["set", "missing an argument"])
        self.refused("config", self.config(), "--schema", says=["--schema"])
        self.refused("train", self.config(), "--set", "name=" + 100_000 * "a", says=["name: got"])
        for option in ("---x", "--s", "-q="):
            self.refused("train", self.config(), option, says=["normscope train --help"])

    def test_defaults_are_written_as_a_person_would(self):
        self.assertIn('"min_lr": 0.0003,', self.normscope("config", self.config(), "--set", "train.lr=0.003").stdout)


class Config(CliTest):
    def test_broken_json_is_located(self):
        self.write("broken.json", '{\n  "train": { "steps": 3,, }\n}\n')
        self.refused("train", "broken.json", says=["broken.json: parse error at line 2, column"])
        self.write("twice.json", '{"train": {"steps": 3, "steps": 4}}')
        self.refused("train", "twice.json", says=["twice.json: duplicate key", "steps"])

    def test_unknown_keys_and_values_name_the_nearest_and_the_allowed(self):
        self.refused("train", self.config(), "--set", "model.n_layers=3", says=["did you mean model.n_layer?"])
        self.refused("train", self.config(), "--set", "train.learning=3", says=["train.learning"])
        self.refused("train", self.config(), "--set", "model.norm=layrnorm", says=["layrnorm", "layernorm", "rmsnorm"])
        self.refused("train", self.config(), "--set", "train.steps=3.7", says=["train.steps", "3.7"])
        self.refused("train", self.config(), "--set", "train.steps=true", says=["train.steps", "true"])
        self.refused("train", self.config(), "--set", "train.steps=-1", says=["train.steps", "-1"])
        self.refused("train", self.config(), "--set", "model.dropout=1", says=["model.dropout"])
        self.refused("train", self.config(), "--set", "nothing", says=["KEY=VALUE"])

    def test_whole_numbers_may_be_written_as_powers(self):
        run = self.train("run", None, "--set", "train.steps=1e1")
        self.assertEqual(run.summary["steps"], 10)

    def test_all_problems_are_said_at_once(self):
        config = self.config({"model": {"n_head": 5, "d_model": 64, "norm": "soft", "widht": 3}, "train": {"steps": 0}})
        self.refused("train", config, lines=4, says=[
            "model.norm: ", "model.widht: unknown key", "train.steps: ",
            "[config] model.n_head: 5 does not divide model.d_model = 64; try 4 or 8"])

    def test_missing_files(self):
        self.refused("train", "none.json", says=["none.json"])
        self.refused("train", ".", says=["."])
        self.refused("train", self.config({"data": {"path": "none.txt"}}), says=["data.path", "none.txt"])
        self.write("child.json", '{"extends": "lost.json"}')
        self.refused("train", "child.json", says=["lost.json"])
        self.refused("train", self.config({"data": {"path": "data/tinyshakespeare.txt"}}),
                     says=["scripts/get_tinyshakespeare.sh"])
        self.refused("train", self.config({"data": {"path": "."}}), says=["is a folder"])

    def test_other_configs_are_found_here_too_and_else_the_nearest_is_named(self):
        os.makedirs(self.path("configs"))
        os.makedirs(self.path("mine"))
        self.config(name="configs/base.json")
        self.write("mine/child.json", '{"extends": "configs/base.json", "data": {"path": "text.txt"}}')
        self.normscope("config", "mine/child.json")
        self.write("child.json", '{"extends": "base.json"}')
        self.refused("train", "child.json", says=["there is no file base.json; did you mean configs/base.json? "
                                                  "(child.json)"])
        self.write("typo.json", '{"extends": "configs/bsae.json"}')
        self.refused("train", "typo.json", says=["did you mean configs/base.json?"])

    def test_a_sweep_is_no_config(self):
        self.config()
        self.write("grid.json", '{"base": "tiny.json", "seeds": [1], "grid": {"train.lr": [1, 2]}}')
        self.refused("train", "grid.json", says=["is a sweep", "scripts/sweep.py grid.json"])
        self.write("cases.json", '{"base": "tiny.json", "cases": [{"name": "a", "set": {"train.lr": 1}}]}')
        self.refused("train", "cases.json", says=["is a sweep", "scripts/sweep.py cases.json"])

    def test_commands_that_are_scripts_name_them(self):
        for arguments in (["sweep"], ["sweep", "--help"], ["sweep", "grid.json", "--jobs", "2"]):
            self.refused(*arguments, says=["scripts/sweep.py"])
        self.refused("swep", says=["did you mean sweep?"])

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
        for i, name in enumerate(("/dev/stdin", "/proc/self/fd/0", "pipe")):
            process = subprocess.Popen([BINARY, "train", name, "--out", f"out-{i}", "--set", "name=run"], cwd=self.folder,
                                       env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, encoding="utf-8")
            if name == "pipe":
                self.write("pipe", config)
            self.assertEqual((process.communicate(config, timeout=60)[1], process.returncode), ("", 0))
            self.assertEqual(Run(self.path(f"out-{i}")).json("config.json"), Run(self.path("file")).json("config.json"))


class Corpus(CliTest):
    def train_on(self, content, *says, **model):
        self.write("other.txt", content)
        config = self.config({"data": {"path": "other.txt"}, "model": model})
        return self.refused("train", config, "--out", "run", says=["other.txt", *says])

    def test_invalid_utf8_is_located(self):
        self.train_on(b"a" * 300 + b"\xff" + b"b" * 300, "byte 300", "0xFF")
        self.train_on(b"a" * 300 + b"\xed\xa0\x80" + b"b" * 300, "byte 300")
        self.train_on("text".encode("utf-16"), "byte 0", "UTF-16")
        for content, advice in ((gzip.compress(TEXT.encode()), "gunzip"), (b"PK\x03\x04\xff", "an archive"),
                                (b"%PDF-1.7\n%\xe2\xe3", "pdftotext")):
            self.train_on(content, advice)

    def test_too_little_text(self):
        self.train_on("", "empty")
        self.train_on("\ufeff", "empty")
        self.train_on("abcdefgh", "17")
        self.train_on(TEXT, "65536", context=65536)

    def test_the_least_text_that_does(self):
        self.write("other.txt", TEXT[:19])  # 17 characters to learn from, 2 to validate on
        least = {"data": {"path": "other.txt", "val_fraction": 0.1}, "train": {"steps": 2}}
        self.train("run", least)
        self.write("other.txt", TEXT[:18])
        self.refused("train", self.config(least), "--out", "no", says=["training part", "16 of 18"])
        least["data"]["val_fraction"] = 0.05
        self.refused("train", self.config(least), "--out", "no", says=["validation part", "1 characters"])

    def test_unusual_characters_are_characters(self):
        text = "\ufeff" + "α\r\n\x00é😀\x1b" * 60
        self.write("other.txt", text)
        run = self.train("run", {"data": {"path": "other.txt"}})
        self.assertEqual(json.loads(run.metadata()["vocab"]), sorted(map(ord, set(text[1:]))))
        self.assertIn("😀", self.normscope("sample", "run", "--prompt", "é😀", "--length", "20").stdout)


class Unusual(CliTest):
    """What is odd but sound is taken."""

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

    def test_a_vocabulary_of_100_000(self):
        self.write("text.txt", "".join(map(chr, range(0x10000, 0x10000 + 100_000))))
        run = self.train("run", {"model": {"n_layer": 1, "d_model": 2, "n_head": 1, "context": 4}, "data": {"val_fraction": 0.001},
                                 "train": {"steps": 1, "batch_size": 1}, "eval": {"batches": 1, "every": 0}})
        self.assertEqual(run.summary["vocab"], 100_000)
        self.assertAlmostEqual(run.summary["final_train_loss"], np.log(100_000), delta=0.1)
        prompt = chr(0x10000 + 99_999)
        self.assertTrue(self.normscope("sample", "run", "--prompt", prompt, "--length", "3").stdout.startswith(prompt))
        self.refused("sample", "run", "--prompt", "é", says=["'é' (U+00E9)", "100000"])


class Files(CliTest):
    def test_folders_that_are_no_run(self):
        os.mkdir(self.path("empty"))
        for command in ("sample", "eval"):
            for name in ("empty", "missing"):
                self.assertEqual(self.refused(command, name, says=[name]).stdout, "")
        self.refused("probe", self.config(), "--from", "missing", "--out", "probe", says=["missing: no such file"])

    def test_broken_safetensors_are_refused(self):
        run = self.train("run")
        sound = run.bytes("model.safetensors")
        (length,) = struct.unpack("<Q", sound[:8])
        broken = {
            "empty": b"",
            "short": sound[:7],
            "cut": sound[:-4],
            "long": sound + b"1234",
            "header": sound[:8] + b"[" + sound[9:],
            "flipped": sound[:-2] + bytes([sound[-2] ^ 16]) + sound[-1:],
            "huge": struct.pack("<Q", 1 << 60) + sound[8:],
            "text": TEXT.encode(),
            "shape": sound.replace(b'"shape":[48,16]', b'"shape":[16,48]', 1),
            "no-header": struct.pack("<Q", 0) + sound[8 + length :],
        }
        for name, content in broken.items():
            self.write(f"{name}.safetensors", content)
            self.refused("eval", f"{name}.safetensors", code=1, says=[f"{name}.safetensors"])
            self.refused("probe", "tiny.json", "--from", f"{name}.safetensors", "--out", name, code=1, says=[name])
        for name in ("empty", "short", "huge", "text"):
            self.refused("sample", f"{name}.safetensors", code=1, says=[f"{name}.safetensors: is no safetensors file: "])

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
            memory, said = self.peak_rss_mb(command, "huge.safetensors", code=1)
            self.assertRegex(said, r"^\[safetensors\] huge\.safetensors: .*; the model needs .*\n$")
            self.assertLess(memory, 100)
        wide = self.config({"model": {"d_model": 512, "n_layer": 8}}, name="wide.json")
        memory, said = self.peak_rss_mb("probe", wide, "--from", "run/model.safetensors", "--out", "probe", code=1)
        self.assertRegex(said, r"^\[safetensors\] run/model\.safetensors: .*; the model needs .*\n$")
        self.assertLess(memory, 100)

    def test_a_model_file_that_is_not_ours_is_refused(self):
        run = self.train("run")
        for change in ({"normscope": "2"}, {"normscope": None}, {"config": "{}"}, {"config": "["}, {"config": None},
                       {"vocab": "[]"}, {"step": "-1"}, {"step": "many"}):
            self.write("other.safetensors", with_metadata(run.bytes("model.safetensors"), change))
            for command in ("sample", "eval"):
                self.refused(command, "other.safetensors", code=1, says=["other.safetensors"])

    def test_prompts_with_unknown_characters(self):
        self.train("run")
        self.refused("sample", "run", "--prompt", "Ω and Я", says=["'Ω' (U+03A9)", "'Я'"])
        self.refused("sample", "run", "--prompt", os.fsdecode(b"a\xff"), says=["byte 1"])

    def test_a_text_to_evaluate_must_be_known_and_long_enough(self):
        self.train("run")
        self.write("other.txt", "Ω" * 10)
        self.refused("eval", "run", "--data", "other.txt", says=["Ω"])
        self.write("other.txt", "a")
        self.refused("eval", "run", "--data", "other.txt", says=["other.txt"])
        self.refused("eval", "run", "--data", "none.txt", says=["none.txt"])


class NothingRaw(CliTest):
    """Control characters of names and values are spelled out, never sent."""

    def test_in_arguments(self):
        self.config()
        train = ("train", "tiny.json")
        for arguments in ((HOSTILE,), ("train", HOSTILE), ("sample", HOSTILE), ("eval", HOSTILE),
                          ("bench", HOSTILE), ("probe", "tiny.json", "--from", HOSTILE, "--out", "p"),
                          (*train, f"--{HOSTILE}"), (*train, "-\x1b"), (*train, f"--quiet={HOSTILE}"),
                          (*train, "--threads", HOSTILE), (*train, "--set", HOSTILE),
                          (*train, "--set", f"{HOSTILE}=1"), (*train, "--set", f"name={HOSTILE}"),
                          (*train, "--set", f"data.path={HOSTILE}")):
            result = self.call(*arguments)
            self.assertIn(result.returncode, (1, 2), arguments)
            self.assert_no_controls(result.stderr + result.stdout)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_in_names_of_files_that_exist(self):
        self.train("run", {"train": {"steps": 2}})
        os.mkdir(self.path(HOSTILE))
        self.write(f"{HOSTILE}/one.txt", "a")
        self.write(f"{HOSTILE}/bad.txt", b"\xff")
        self.write(f"{HOSTILE}/bad.json", "{")
        self.write(f"{HOSTILE}/bad.safetensors", "{")
        write_safetensors(self.path(HOSTILE, "none.safetensors"), {})
        write_safetensors(self.path(HOSTILE, "other.safetensors"), {HOSTILE: np.zeros(3)})
        self.write(f"{HOSTILE}/tiny.json", json.dumps(TINY | {"data": {"path": "bad.txt"}}))
        for arguments in (("eval", "run", "--data", f"{HOSTILE}/one.txt"),
                          ("eval", "run", "--data", f"{HOSTILE}/bad.txt"),
                          ("eval", f"{HOSTILE}/none.safetensors"),
                          ("sample", f"{HOSTILE}/bad.safetensors"),
                          ("sample", HOSTILE),
                          ("train", f"{HOSTILE}/bad.json"),
                          ("train", f"{HOSTILE}/tiny.json"),
                          ("train", "tiny.json", "--out", f"{HOSTILE}/one.txt"),
                          ("probe", "tiny.json", "--from", f"{HOSTILE}/none.safetensors", "--out", "p"),
                          ("probe", "tiny.json", "--from", f"{HOSTILE}/other.safetensors", "--out", "q")):
            result = self.call(*arguments)
            self.assertIn(result.returncode, (1, 2), arguments)
            self.assert_no_controls(result.stderr + result.stdout)

    def test_in_what_succeeds(self):
        out = f"{HOSTILE}/run"
        os.mkdir(self.path(HOSTILE))
        said = self.normscope("train", self.config({"train": {"steps": 2}}), "--out", out).stdout
        said += self.normscope("train", "tiny.json", "--out", out, "--resume").stdout
        said += self.normscope("probe", "tiny.json", "--out", f"{HOSTILE}/probe").stdout
        self.write(f"{HOSTILE}/here.json", json.dumps(TINY))
        said += self.normscope("config", "--origin", f"{HOSTILE}/here.json").stdout
        self.write(f"{HOSTILE}/text.txt", TEXT)
        resolved = self.normscope("config", f"{HOSTILE}/here.json").stdout
        self.assertEqual(json.loads(resolved)["data"]["path"], self.path(HOSTILE, "text.txt"))
        self.assert_no_controls(said + resolved)


if __name__ == "__main__":
    unittest.main()
