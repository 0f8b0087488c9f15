"""The table of symptoms: faults of training, and for each the sign by which a log shows it. Reason and cure are read
from the course's page (Symptom.text); the page's table of figures is written from this one (tests/tools/course.py)."""

import bisect
import collections
import math
import re
import statistics
from dataclasses import dataclass
from typing import Callable

from lib.base.command import ROOT

PAGE = ROOT / "configs" / "course" / "README.md"
SHARE = 1 / 4  # of the rows that a sign is about must show it
MATRIX = re.compile(r"blocks\.\d+\.(attn\.[qkv]|ffn\.(in|gate))\.weight")  # no projection that may start at 0


@dataclass(frozen=True)
class Symptom:
    """A fault and its sign; the functions take a row of the log and its Context.

    log, column  where the sign is looked for, in words of the page
    is_about     whether a row can show it
    figure       what is judged of such a row
    sign         the figure is "above" or "below" the limit
    picture      the kind of plot.py that shows it
    cases        {case of configs/course/symptoms.json with the fault: the case without}"""
    fault: str
    log: str
    column: str
    is_about: Callable
    figure: Callable
    sign: str
    limit: float
    picture: str
    cases: dict

    def figure_of(self, row, context):
        """The figure of a row; NaN, which is no sign, if a cell is missing or the divisor is 0."""
        try:
            return self.figure(row, context)
        except (KeyError, ZeroDivisionError):
            return math.nan

    def is_shown(self, figure):
        return figure < self.limit if self.sign == "below" else figure > self.limit

    @property
    def text(self):
        """Reason and cure, from the page."""
        item = rf"^- \*\*{self.fault}\*\*: (.*?)(?=\n- |\n\n)"
        return " ".join(re.search(item, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1].split())


@dataclass(frozen=True)
class Context:
    """rows: {place: row} of the log's step; before: those of the same place at earlier logged steps; norms: their
    clipped norms, ascending; depth: the number of blocks; uniform: the loss if each character is equally likely, in
    nats."""
    rows: dict
    before: list
    norms: list
    depth: int
    uniform: float

    def first(self, figure):
        """The figure in the first row; NaN, which is no sign, later."""
        return math.nan if self.before else figure


def _is_matrix(row, context):
    return bool(MATRIX.fullmatch(row["param"])) and row["rms"] > 0


def _is_stream(row, context):
    return row["site"] == "stream" and row["layer"] > 0


def _is_first_stream(row, context):
    return row["site"] == "stream" and row["layer"] == 1 < context.depth


def _is_any(row, context):
    return True


def _clipped(row):
    return row["grad_norm"] * row["clip_factor"]


def _spike(row, context):
    return _clipped(row) / statistics.median(context.norms or [_clipped(row)])


SYMPTOMS = (
    Symptom("rate too high", "params.csv", "`update_rms` over `rms`", _is_matrix,
            lambda row, context: row["update_rms"] / row["rms"], "above", 0.3,
            "layers", {"rate too high": "healthy", "SGD, rate too high": "SGD, clipping"}),
    Symptom("no residual", "layers.csv", "`rms` over that of layer 0", _is_stream,
            lambda row, context: context.first(row["rms"] / context.rows["layer 0, site stream"]["rms"]), "below", 0.1,
            "layers", {"no residual": "healthy"}),
    Symptom("weights too large", "metrics.csv", "`train_loss` minus ln V", _is_any,
            lambda row, context: context.first(row["train_loss"] - context.uniform), "above", 1,
            "loss", {"weights too large": "healthy"}),
    Symptom("eps too large", "layers.csv", "`rms`", lambda row, context: row["site"] in ("attn_in", "ffn_in"),
            lambda row, context: context.first(row["rms"]), "below", 0.3,
            "layers", {"eps too large": "healthy"}),
    Symptom("logits grow", "heads.csv", "`max_logit`", _is_any, lambda row, context: row["max_logit"], "above", 30,
            "heads", {"logits grow": "logits grow, qk_norm"}),
    Symptom("SGD, no clipping", "metrics.csv", "`grad_norm` after clipping, over its median so far", _is_any, _spike,
            "above", 8,
            "loss", {"SGD, no clipping": "SGD, clipping"}),
    Symptom("post, no warm-up", "layers.csv", "`grad_rms` over that of the last block", _is_first_stream,
            lambda row, context: row["grad_rms"] / context.rows[f"layer {context.depth}, site stream"]["grad_rms"],
            "below", 1 / 30,
            "heatmap", {"post, no warm-up": "post, warm-up"}),
    Symptom("decay too high", "params.csv", "`rms` over that of the first row", _is_matrix,
            lambda row, context: row["rms"] / (context.before or [row])[0]["rms"], "below", 1 / 3,
            "loss", {"decay too high": "healthy"}),
)


def figures(symptom, run, logs):
    """{step: {place: figure}} of the rows of a run that a symptom is about. `logs`: as departures.logs_of has them."""
    depth, uniform = run.value("model.n_layer"), math.log(run.summary.get("vocab") or math.inf)
    found, before, norms = {}, collections.defaultdict(list), collections.defaultdict(list)
    for step, rows in sorted(logs.get(symptom.log, {}).items()):
        contexts = {place: Context(rows, before[place], norms[place], depth, uniform) for place in rows}
        found[step] = {place: symptom.figure_of(row, contexts[place]) for place, row in rows.items()
                       if symptom.is_about(row, contexts[place])}
        for place, row in rows.items():
            before[place].append(row)
            if row.keys() >= {"grad_norm", "clip_factor"}:
                bisect.insort(norms[place], _clipped(row))
    return found


def first_sight(symptom, run, logs):
    """(step, place, figure) of the first row that shows a symptom, at a step at which a quarter of the rows that it is
    about do; an infinite step without one."""
    for step, of_places in figures(symptom, run, logs).items():
        shown = [(step, place, figure) for place, figure in of_places.items() if symptom.is_shown(figure)]
        if shown and len(shown) >= SHARE * len(of_places):
            return shown[0]
    return math.inf, "", math.nan


def fitting(run, logs, healthy=()):
    """(symptom, step, place, figure) of the sign that is seen first, the earlier in the table at a tie; None without
    one. A sign that a healthy run shows as early is none. `healthy`: [(run, its logs)]."""
    signs = [(symptom, *first_sight(symptom, run, logs)) for symptom in SYMPTOMS]
    signs = [sign for sign in signs if sign[1] < math.inf and
             all(first_sight(sign[0], *other)[0] > sign[1] for other in healthy)]
    return min(signs, key=lambda sign: sign[1], default=None)
