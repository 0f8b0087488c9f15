"""What the tests of `normscope compare` share."""

import csv
import io
import json
import os
import shutil
import tempfile

from cli import CliTest, Run, merged

COLUMNS = ["run", "seeds", "placement", "norm", "n_layer", "params", "status"] + [
    f"{name}{part}" for name in ("best_val_loss", "final_val_loss", "final_train_loss", "grad_first_last", "growth",
                                 "tokens_per_s") for part in ("", "_spread")]
STORY = "step 7: block 1 ffn_out became non-finite; activations had grown 9.5 times since step 1"


class CompareTest(CliTest):
    def csv(self, *arguments):
        text = self.normscope("compare", "--csv", *arguments).stdout
        return {row["run"]: row for row in csv.DictReader(io.StringIO(text), strict=True)}

    def compare(self, *arguments):
        return self.normscope("compare", *arguments).stdout

    def json(self, *arguments):
        return json.loads(self.normscope("compare", "--json", *arguments).stdout)

    def labels(self, *arguments):
        return list(self.csv(*arguments or ("runs",)))


class MadeCompareTest(CompareTest):
    """Runs with made-up results: a tiny one is trained, then copied with other configs and results."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.template = tempfile.mkdtemp(prefix="normscope-test-")
        cls.addClassCleanup(shutil.rmtree, cls.template)

    def make(self, folder, loss=2.5, changes=None, **summary):
        """A run folder whose config has `changes` and whose summary has this final_val_loss and what else is given."""
        if not os.path.exists(os.path.join(self.template, "run")):
            shutil.copytree(self.train("template", {"train": {"steps": 2}}).path, os.path.join(self.template, "run"))
        run = Run(self.path(folder))
        shutil.copytree(os.path.join(self.template, "run"), run.path)
        shown = self.normscope("config", self.config(merged({"train": {"steps": 2}}, changes or {}), name="made.json"))
        with open(run.file("config.json"), "w", encoding="utf-8") as file:
            file.write(shown.stdout)
        with open(run.file("summary.json"), encoding="utf-8") as file:
            results = json.load(file)
        results |= {"final_val_loss": loss, "best_val_loss": loss, **summary}
        with open(run.file("summary.json"), "w", encoding="utf-8") as file:
            json.dump(results, file)
        return run

    def make_seeds(self, name, losses, changes=None, **summary):
        """Runs name-1, name-2, ...: a seed for each loss; or seeds and losses from a dict."""
        by_seed = losses if isinstance(losses, dict) else dict(enumerate(losses, start=1))
        for seed, loss in by_seed.items():
            self.make(f"runs/{name}-{seed}", loss, merged(changes or {}, {"train": {"seed": seed}}), **summary)

    def diverged(self, folder, step, **changes):
        lost = {"step": step, "layer": 1, "site": "ffn_out", "kind": "value"}
        return self.make(folder, None, changes, status="diverged", steps=step - 1, first_nonfinite=lost,
                         story=STORY + f", or so {step}", final_train_loss=1009349.8425)
