"""The pieces of an experiment of configs/papers, and the claims that it makes.

An experiment is a module of scripts/papers. Its config in configs/papers and its marks on the page there have the same
name. A module has

  measure(run)             gives {name: number or nested lists of numbers} of a trained run; may be missing
  run(config, out, quick)  runs the config file into the folder `out` and returns the results, mostly by a call of
                           papers_run.probe; without it the config is a sweep, whose trained runs are the results
  claims(results)          yields a Claim for each number with a value expected from the paper or a law
  table(results)           returns Markdown for the page; may be missing
  picture(results)         returns a matplotlib figure for the page; may be missing

The last three read nothing but the results, which configs/papers/results keeps: papers_results.py.

A law is a value that theory expects: a closed formula, or what lib.theory.mean_field predicts. The ranges of the
claims come from the papers, the laws at initialisation, or what a reader would take for no difference. Where a paper's
result was not expected to hold here, the config says so, and the claim has the opposite range. Where it was expected
and does not, the claim keeps the paper's range with must_hold=False, and the page shows MISSED. The question and the
sources of an experiment are in its config file.
"""

import importlib
import re
from dataclasses import dataclass

from lib.base.command import ROOT, ScriptError
from lib.logs import np

CONFIGS = ROOT / "configs" / "papers"
MODULES = ROOT / "scripts" / "papers"
PAGE = CONFIGS / "README.md"
UNIGRAM = 3.08  # nats: the validation loss of a model that only counts letters, on the bundled corpus


@dataclass
class Claim:
    """A measured value and the range [low, high] that is expected. must_hold=False: the value is known to be outside;
    reproduce.py prints MISSED and does not fail."""
    text: str
    value: float
    low: float
    high: float
    must_hold: bool = True

    @property
    def verdict(self):
        return "ok" if self.low <= self.value <= self.high else "MISSED"


def learns(text, loss, high=2.8):
    """The claim that runs with this final validation loss have learnt more than the frequencies of letters."""
    return Claim(f"{text}: learns", loss, 2.0, high)


def stays_at_unigram(text, loss):
    """The claim that runs with this final validation loss have learnt nothing but the frequencies of letters."""
    return Claim(f"{text}: the unigram level", loss, UNIGRAM - 0.06, UNIGRAM + 0.1)


def distance_from_law(probes, relative=True):
    """The largest distance of a mean over seeds from its law, over layers and variants. `probes`: {variant: Probed}."""
    distances = [np.abs(probed.mean - probed.law) / (probed.law if relative else 1) for probed in probes.values()]
    return max(float(distance.max()) for distance in distances)


def log_slope(x, y):
    """The slope of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def names_of_experiments():
    """The names of all experiments, in the order of their marks on the page. Raises ScriptError if an experiment lacks
    its config, its module or its marks."""
    marked = re.findall(r"<!-- results:(\w+) -->\n.*?<!-- /results:\1 -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    configs = [path.stem for path in CONFIGS.glob("*.json")]
    modules = [path.stem for path in MODULES.glob("*.py") if path.stem != "__init__"]
    for name in sorted({*marked, *configs, *modules}):
        marks = f"in {PAGE.relative_to(ROOT)} the lines <!-- results:{name} --> and <!-- /results:{name} -->"
        for piece, names in ((config_of(name).relative_to(ROOT), configs), (f"scripts/papers/{name}.py", modules),
                             (marks, marked)):
            if names.count(name) != 1:
                raise ScriptError(f"experiment {name}: got {names.count(name)} times {piece}; expected them once", 1)
    return marked


def experiment(name):
    """The module of an experiment."""
    return importlib.import_module(f"papers.{name}")


def config_of(name):
    """The config file of an experiment."""
    return CONFIGS / f"{name}.json"
