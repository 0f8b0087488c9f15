"""The results of an experiment of configs/papers, and the file that keeps them: configs/papers/results/NAME.json.
Claims, table and picture are functions of what the file holds, so they need no run, and a diff of the file shows which
number moved.

In JSON, trained runs are {"rows": a row for each}, a probe is {"measured": [...], "law": ...}, and an array is a list.
"""

import json
import math
import re
import statistics
import sys
from dataclasses import dataclass

from lib.base.files import read_json
from lib.compare.pairs import seed_by_seed
from lib.logs import np
from papers.lib.papers import CONFIGS

FOLDER = CONFIGS / "results"
DIGITS = 9  # significant digits of a file's numbers: no two numbers of float32 have the same


@dataclass
class Probed:
    """What a probe has measured, an array (seeds, ...), and what theory expects, an array or None."""
    measured: np.ndarray
    law: np.ndarray = None

    @property
    def mean(self):
        """The mean over seeds."""
        return self.measured.mean(axis=0)


class Runs:
    """The trained runs of a sweep. `rows` has a dict for each: the values of the sweep's keys as texts, under the last
    parts of the keys, `status`, `final_val_loss`, and what the sweep measured. Methods choose runs by the values of
    keys: norm_placement="pre", n_layer=24."""

    def __init__(self, rows):
        self.rows = rows

    def matching(self, **values):
        """The rows that have these values, in the order of their seeds."""
        return [row for row in self.rows if all(row[key] == str(value) for key, value in values.items())]

    def where(self, **values):
        """The rows that have these values. Ends this script if there are none."""
        rows = self.matching(**values)
        if not rows:
            sys.exit(f"[reproduce] no run has {values}; expected one; change the sweep file or the experiment's module")
        return rows

    def losses(self, **values):
        """The final validation loss of each run with these values; of one that diverged, infinity."""
        return [row["final_val_loss"] if row["status"] == "done" else math.inf for row in self.where(**values)]

    def loss(self, **values):
        """The mean over seeds of the final validation losses."""
        return statistics.fmean(self.losses(**values))

    def measured(self, name, **values):
        """The measure `name` of the runs with these values, an array with a row for each run."""
        return np.array([row[name] for row in self.where(**values)])

    def lines(self, name, chosen, law=None, **shared):
        """{line: Probed} of the measure `name`, and of the measure `law` of the first run, for {line: the values that
        its runs have} and the values that all of them have."""
        return {line: Probed(self.measured(name, **values, **shared),
                             self.measured(law, **values, **shared)[0] if law else None)
                for line, values in chosen.items()}

    def paired(self, values, base, **shared):
        """The final losses of the runs with `values` minus those of the runs with `base`, seed by seed, as compare.py
        has it: `mean`, and `difference` in words. Needs two seeds. `shared`: values that all of the runs have."""
        chosen, others = ({row["seed"]: row["final_val_loss"] for row in self.where(**{**shared, **one})
                           if row["status"] == "done"} for one in (values, base))
        return seed_by_seed(chosen, others) or {"mean": math.nan, "difference": "diverged"}

    def difference(self, values, base, **shared):
        """The mean of those differences."""
        return self.paired(values, base, **shared)["mean"]


# ---- the file ---------------------------------------------------------------------------------------------------


def text_of(results):
    """The text of a file, with numbers rounded to DIGITS. Each list of numbers, and each run without one, is on a
    line."""
    def plain(value):
        return value.tolist() if isinstance(value, np.ndarray) else vars(value)

    def rounded(text):
        return float(f"{float(text):.{DIGITS}g}")

    data = json.loads(json.dumps(results, default=plain), parse_float=rounded)
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return re.sub(r"(?<=[\[{])\s+([^\[\]{}]*?)\s+(?=[\]}])",
                  lambda match: re.sub(r"\s*\n\s*", " ", match[1]), text) + "\n"


def of_data(data):
    """The results of a file's data; only those of probes have arrays instead of lists."""
    if not isinstance(data, dict):
        return data
    if data.keys() == {"rows"}:
        return Runs(**data)
    if data.keys() == {"measured", "law"}:
        return Probed(**{name: value if value is None else np.array(value) for name, value in data.items()})
    return {name: of_data(value) for name, value in data.items()}


def file_of(name, folder=FOLDER):
    return folder / f"{name}.json"


def load(name, folder=FOLDER):
    """The kept results of an experiment. ScriptError: the file is missing or damaged."""
    return of_data(read_json(file_of(name, folder)))
