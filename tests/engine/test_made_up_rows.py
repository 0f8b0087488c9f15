#!/usr/bin/python3
"""Adds a made-up placement, norm and key by editing only the files that the README names, and tests what knows them.

The program with these rows is built beside the one under test. Configs, the schema, explain, check with its gradients
against differences, training, compare, plots and the comparison with PyTorch must take the rows from the tables.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import mutants
from cli import PATIENCE, ROOT

# y = N2(alpha x + F(N(x))), alpha = sqrt(3L)
PLACEMENT = [
    ("src/model/placement.h", "  pre,\n  post,", "  made_up,\n  pre,\n  post,"),
    ("src/model/placement.h", '.formula = "y = x + F(x)", .source = "the control"},',
     '.formula = "y = x + F(x)", .source = "the control"},'
     '{.kind = PlacementKind::made_up, .name = "made_up", .formula = "y = N2(alpha*x + F(N(x)))", .source = "a test",'
     ' .norm_in = true, .norm_out = true, .alpha = {3, 0.5}},'),
    ("src/check/equations.cpp", "if (kind == deepnorm)",
     "if (kind == made_up) return F ? N2(join(std::sqrt(3 * L), *F)) : N(x);\n    if (kind == deepnorm)"),
    ("scripts/lib/model/forward.py", '"none": lambda: skip',
     '"made_up": lambda: N2((3 * L) ** 0.5 * skip + a * F(N(x))),\n            "none": lambda: skip'),
]
# y = g x / (2 rms(x))
NORM = [
    ("src/model/norms.h", "none };", "none, made_up };"),
    ("src/model/norms.h", '{.kind = NormKind::none,',
     '{.kind = NormKind::made_up, .name = "made_up", .formula = "y = g*x/(2*sqrt(mean(x^2) + eps))",'
     ' .source = "a test", .centred = false, .has_bias = false}, {.kind = NormKind::none,'),
    ("src/model/transformer.cpp", "case rmsnorm:",
     "case made_up: return scale(tape, Real(0.5), over_features(1, false)); case rmsnorm:"),
    ("src/check/equations.cpp", "i < n && config.norm != NormKind::rmsnorm",
     "i < n && config.norm != NormKind::rmsnorm && config.norm != NormKind::made_up"),
    ("src/check/equations.cpp", "const Dual *gain = parameter(name",
     "for (Dual& half : y) half = half * (config.norm == made_up ? 0.5 : 1.0);\n    const Dual *gain = parameter(name"),
    ("scripts/lib/model/forward.py", '"none": lambda net',
     '"made_up": lambda net, name, x: net.scaled(name, x, -1) / 2,\n    "none": lambda net'),
]
# A key with a derived default. Units that do not name its member are not compiled again, so it must lie in padding,
# where it changes no other member's place, which the assertion proves, and between members, where copies take it along.
KEY = [
    ("src/config/run_config.h", "bool fixed_batch = false;", "bool fixed_batch = false, made_up = false;"),
    ("src/config/run_config.h", "struct EvalConfig {",
     "static_assert(offsetof(TrainConfig, made_up) % alignof(TrainConfig) == 1); struct EvalConfig {"),
    ("src/config/fields.cpp", 'row("train.optimizer",',
     'row("train.made_up", train(&T::made_up), boolean(), "a test",'
     ' {.default_to = {"true with a batch of 2",'
     ' [](RunConfig& c) { c.train.made_up = c.train.batch_size == 2; }}, .needs = {{has_momentum}}}),'
     'row("train.optimizer",'),
]
UNITS = ["model/config.cpp", "model/transformer.cpp", "check/equations.cpp", "config/fields.cpp"]
TINY = {"n_layer": 2, "n_head": 2, "d_model": 16, "d_ff": 24, "context": 12, "tie_embeddings": False,
        "init": {"scheme": "xavier_normal", "embed_std": 1}}


def files(edits):
    return {name for name, _, _ in edits}


class MadeUpRows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = root = Path(cls.folder.name)
        edits = PLACEMENT + NORM + KEY
        cls.program = mutants.build(root, UNITS, [(name[4:], text, becomes) for name, text, becomes in edits
                                                  if name.startswith("src/")])
        shutil.copytree(Path(ROOT) / "scripts", root / "scripts")
        mutants.edit(root, [e for e in edits if e[0].startswith("scripts/")])
        (root / "configs").mkdir()
        (root / "configs/schema.json").write_text(cls.call("config", "--schema").stdout, encoding="utf-8")

    @classmethod
    def call(cls, *arguments, program=None, code=0):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NORMSCOPE_BINARY": str(cls.program)}
        done = subprocess.run([program or cls.program, *arguments], cwd=cls.root, capture_output=True, encoding="utf-8",
                              env=environment, timeout=PATIENCE, check=False)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def config(self, **model):
        path = self.root / "config.json"
        path.write_text(json.dumps({"model": {**TINY, **model}, "data": {"path": f"{ROOT}/data/austen.txt"},
                                    "train": {"steps": 3, "batch_size": 2}, "log": {"layers_every": 1}}),
                        encoding="utf-8")
        return str(path)

    def both(self):
        return self.config(norm_placement="made_up", norm="made_up")

    def test_the_readme_names_the_files(self):
        readme = (Path(ROOT) / "src" / "README.md").read_text(encoding="utf-8")
        recipes = readme[readme.index("**Add a placement**"):readme.index("a sample in")]
        for name in files(PLACEMENT) | files(NORM):
            self.assertIn(name.removeprefix("src/"), recipes)
        for header, edits in (("norms", NORM), ("placement", PLACEMENT)):
            comment = mutants.source_path(f"model/{header}.h").read_text(encoding="utf-8").partition("#pragma")[0]
            named = set(re.findall(r"\S+\.(?:py|cpp)", comment))
            self.assertEqual(named, {"check/equations.cpp", "scripts/lib/model/forward.py"})
            self.assertLessEqual(named, {name.removeprefix("src/") for name in files(edits)})
        self.assertEqual((len(files(PLACEMENT)), len(files(NORM))), (3, 4))

    def test_config_and_schema(self):
        resolved = json.loads(self.call("config", self.both()).stdout)
        self.assertEqual([resolved["model"][key] for key in ("norm", "norm_placement")], ["made_up", "made_up"])
        self.assertIn("model.norm_bias", resolved["$idle"])  # the norm has no bias
        # A norm has to say in its row that its code follows these keys.
        ignored = json.loads(self.call("config",
                                       self.config(norm="made_up", norm_detach=True, norm_eps_outside=True)).stdout)
        self.assertLessEqual({"model.norm_detach", "model.norm_eps_outside"}, set(ignored["$idle"]))
        schema = json.loads((self.root / "configs/schema.json").read_text(encoding="utf-8"))
        self.assertIn("made_up", schema["properties"]["model"]["properties"]["norm"]["enum"])
        self.assertEqual(schema["x-placements"]["made_up"]["alpha"], [3, 0.5])

    def test_key(self):
        self.assertEqual(len(files(KEY)), 2)
        by_sgd, path = ("--set", "train.optimizer=sgd"), self.both()
        output = self.call("config", path, "--set", "train.made_up=true", *by_sgd, "--origin").stdout
        self.assertRegex(output, r"(?m)^train\.made_up +true +--set$")
        self.assertIn("train.made_up", json.loads(self.call("config", path).stdout)["$idle"])
        self.assertIs(json.loads(self.call("config", path, *by_sgd).stdout)["train"]["made_up"], True)
        schema = json.loads((self.root / "configs/schema.json").read_text(encoding="utf-8"))
        self.assertEqual(schema["properties"]["train"]["properties"]["made_up"]["description"],
                         "a test (default: true with a batch of 2)")
        self.call("train", path, *by_sgd, "--out", "runs/derived-2")
        differs = self.call("train", path, *by_sgd, "--set", "train.made_up=false", "--resume", "--out",
                            "runs/derived-2", code=2)
        self.assertIn("train.made_up (true -> false)", differs.stderr)
        self.call("train", path, *by_sgd, "--set", "train.batch_size=3", "--out", "runs/derived-3")
        self.call("train", path, *by_sgd, "--set", "train.made_up=false", "--out", "runs/chosen")
        for run, difference in (("derived-3", "train.batch_size; with that comes train.made_up true -> false"),
                                ("chosen", "made_up true: train.made_up;")):
            output = self.call("scripts/compare.py", "runs/derived-2", f"runs/{run}", program=sys.executable).stdout
            self.assertIn(difference, re.sub(r"\s+", " ", output.replace("train.made_up\n", "train.made_up;\n")))

    def test_explain(self):
        self.assertIn("y = N2(alpha*x + F(N(x)))", self.call("explain").stdout)
        output = self.call("explain", "--placement", "made_up").stdout
        self.assertIn("x ─┬─[ N ]─[ F ]─(+)─[ N ]─ y\n       └─[ ·α ]", output)
        self.assertIn("L = 12: α = 6.0000", output)
        refused = self.call("explain", "--norm", "made_up", code=2).stderr
        self.assertIn("the arithmetic of made_up is not known here; its formula is y = g*x/(2*sqrt", refused)
        self.assertIn("x = ffn_post_norm(2.4495·x + ffn(ffn_norm(x)))", self.call("explain", self.both()).stdout)

    def test_check_reads_both_on_its_own(self):
        placement, norm = {"norm_placement": "made_up"}, {"norm": "made_up"}
        for model in (placement, norm, {**placement, **norm}):
            output = self.call("check", self.config(**model)).stdout
            for law in (3, 4, 5, 6):  # gradients against differences, float, equations, first values
                self.assertRegex(output, rf"(?m)^ok +\S+ +\S+ +{law} ")

    def test_training_and_plots(self):
        self.call("train", self.both(), "--out", "run")
        self.call("scripts/plot.py", "branches", "run", "-o", "branches.svg", program=sys.executable)
        self.assertTrue((self.root / "branches.svg").exists())

    def test_pytorch(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("no torch")
        self.call("probe", self.both(), "--out", "probe", "--dump", "pass.safetensors")
        self.call("scripts/check_with_torch.py", "pass.safetensors", program=sys.executable)


if __name__ == "__main__":
    unittest.main()
