"""What the tests of `normscope compare` share."""

import csv
import io
import json
import shutil

from cli import TINY, VOCABULARY, CliTest, Run, merged, write_run

COLUMNS = ["run", "seeds", "placement", "norm", "n_layer", "params", "status"] + [
    f"{name}{part}" for name in ("best_val_loss", "final_val_loss", "final_train_loss", "grad_first_last", "growth",
                                 "tokens_per_s") for part in ("", "_spread")]
SUMMARY = {"status": "done", "steps": 2, "params": 7760, "vocab": VOCABULARY, "final_train_loss": 4.25,
           "grad_first_last": 0.8, "growth": 2.5, "tokens_per_s": 1e5, "branch_share": 0.5}


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

    def kinds(self, *arguments):
        """{kind: the groups of which a remark of that kind is made}."""
        found = {}
        for remark in self.json(*arguments or ("runs",))["remarks"]:
            found.setdefault(remark["kind"], []).extend(remark["groups"])
        return found

    def remark(self, kind, *arguments):
        """The text of the one remark of that kind."""
        (text,) = [r["text"] for r in self.json(*arguments or ("runs",))["remarks"] if r["kind"] == kind]
        return text

    # ---- made-up results

    def make(self, folder, loss=2.5, changes=None, **summary):
        """A run folder whose config has `changes` and whose summary has this final_val_loss and what else is given."""
        base = merged(TINY, {"train": {"steps": 2}, "data": {"path": self.path("text.txt")}})
        write_run(self.path(folder), merged(base, changes or {}),
                  {**SUMMARY, "final_val_loss": loss, "best_val_loss": loss, **summary})
        return Run(self.path(folder))

    def make_seeds(self, name, losses, changes=None, **summary):
        """Runs name-1, name-2, ...: a seed for each loss; or seeds and losses from a dict."""
        by_seed = losses if isinstance(losses, dict) else dict(enumerate(losses, start=1))
        for seed, loss in by_seed.items():
            self.make(f"runs/{name}-{seed}", loss, merged(changes or {}, {"train": {"seed": seed}}), **summary)

    def diverged(self, folder, step, **changes):
        lost = {"step": step, "layer": 1, "site": "ffn_out", "kind": "value"}
        return self.make(folder, None, changes, status="diverged", steps=step - 1, first_nonfinite=lost,
                         story=f"block 1 ffn_out became non-finite in step {step}", final_train_loss=1009349.8425)

    def clear(self):
        shutil.rmtree(self.path("runs"), ignore_errors=True)
