"""Remarks on a comparison: how groups differ, which results stand out, and what cannot be concluded.

ROWS has the remarks on runs. A function on_… yields (kind, sentence, group, count): a sentence to print after the
group's label, and the number of the group's runs of which it is true. remarks_on joins equal sentences about several
groups."""

import collections
import itertools
import json
import math
from collections import namedtuple

from lib.base.command import printable
from lib.base.keys import NORMS, PLACEMENTS, fields, placements
from lib.compare.configs import STEPS
from lib.compare.labels import value_text
from lib.compare.pairs import RATE, TOO_FEW, standard_deviation, values_by_seed
from lib.logs.runs import NORM
from lib.logs.sites import first_nonfinite

TO_TARGET = "steps_to_target"
NEAR_LEVEL = 0.08  # nats from the unigram level: only letter counts are learnt
SMALL_BRANCH = 0.05  # of the stream's rms
OTHER_WEIGHTS = 0.05  # share by which numbers of weights may differ without a remark
SIZE_KEYS = {"model.n_layer", "model.d_model", "model.d_ff"}
STARVED = 1e-3  # grad first/last
ENDED = ("done", "diverged", "probe")
MOST_NAMES = 6
LEAKS = {  # {the axes of a norm's statistics that contain later tokens: the end of the remark}
    "sequence": "; its losses are not those of a causal model",
    "batch": " in training; its training loss is not that of a causal model"}


def remarks_on(groups, pairings, compared_key, pairs, rates, target):
    """[{"text", "kind", "groups"}]: the remarks, with the labels of the groups that each is about. `pairings`: as
    pairs.pairings_of has them; `pairs` and `rates`: the differences seed by seed, and those between learning rates, of
    the comparison; `target`: a loss, or None."""
    counts_by_sentence = collections.defaultdict(collections.Counter)
    for kind, sentence, group, count in itertools.chain(on_pairings(pairings, compared_key),
                                                        on_runs(groups, pairs, rates, target)):
        counts_by_sentence[kind, sentence][group] += count
    remarks = [{"text": subject(counts, len(groups)) + sentence, "kind": kind,
                "groups": [group.label for group in counts]}
               for (kind, sentence), counts in counts_by_sentence.items()]
    return remarks + noise_of(groups)


def subject(counts, total):
    """The labels of the groups that a sentence is true of: "post, pre (1 of 3 seeds)"; "all" if it is true of all of
    more than two groups. `counts`: {group: number of its runs that it is true of}; `total`: the number of groups."""
    if total > 2 and [*counts.values()] == [len(group.runs) for group in counts] and len(counts) == total:
        return "all"
    names = [group.label + ("" if count == len(group.runs) else f" ({count} of {len(group.runs)} seeds)")
             for group, count in counts.items()]
    if len(names) > MOST_NAMES:
        names[MOST_NAMES - 1:] = [f"{len(names) - MOST_NAMES + 1} more"]
    return ", ".join(names)


# ---- a group and its partner ----------------------------------------------------------------------------------


def on_pairings(pairings, compared_key):
    """The differences between each group and its partner."""
    partners = {pairing.partner for pairing in pairings if pairing.difference.choices == [compared_key]}
    for pairing in pairings:
        partner, difference, sentences = pairing.partner.label, pairing.difference, {}
        name = partner
        if len(partners) > 1 and difference.choices == [compared_key]:
            name = f"{value_text(compared_key, pairing.partner.value(compared_key))} in the same setting"
        if difference.changes:
            sentences["differs"] = f" against {name}: {difference_text(pairing)}"
        else:
            sentences["repeat"] = f": repeats {partner}: the configs are the same, so no key explains a difference"
        if difference.incomparable:
            keys = ", ".join(f"{key} (at unequal tokens)" if key == STEPS else key for key in difference.incomparable)
            sentences["not_comparable"] = f": losses are not comparable with those of {partner}: other {keys}"
        sentences["weights"] = difference.changes and weights_text(pairing, name)
        for kind, sentence in sentences.items():
            if sentence:
                yield kind, sentence, pairing.group, len(pairing.group.runs)


def weights_text(pairing, name):
    """ ": 50% more weights than gelu" if the numbers of weights differ by over 5% although nobody changed a size key;
    else ""."""
    before, after = (member.runs[0].record.get("params") or 0 for member in (pairing.partner, pairing.group))
    chosen = {change.key for change in pairing.difference.changes if change.cause}
    if min(before, after) <= 0 or abs(after / before - 1) <= OTHER_WEIGHTS or {"data.path", *SIZE_KEYS} & chosen:
        return ""
    return f": {abs(after / before - 1):.0%} {'more' if after > before else 'fewer'} weights than {name}"


def difference_text(pairing):
    """The keys in which a group differs from its partner: first the chosen ones, then those that follow from them. If
    several were chosen, the text says that no single cause can be named. Values already in the label are not repeated.
    A grid entry with named values is one choice, followed by the keys that it sets:

        model.norm_placement; with that comes model.final_norm true -> false
        batch (train.batch_size 8 -> 2, train.steps 300 -> 1200), train.lr; 2 choices at once: which is the cause …
    """
    texts_by_cause = {cause: [] for cause in [*pairing.difference.choices, ""]}
    for key, before, after, cause in pairing.difference.changes:
        values = printable(" " + " -> ".join(json.dumps(value, ensure_ascii=False) for value in (before, after)))
        texts_by_cause[cause].append(key if key in pairing.group.labelled else key + values)
    derived = texts_by_cause.pop("")
    causes = [texts[0] if cause in fields() else f"{printable(cause)} ({', '.join(texts)})"
              for cause, texts in texts_by_cause.items()]
    sentence = ", ".join(causes) or "the same config"
    if derived:
        sentence += "; with that comes " + ", ".join(derived)
    if len(causes) > 1:
        return f"{sentence}; {len(causes)} choices at once: which is the cause cannot be told from these two"
    follows_init = _has_init_key(derived) or _scales_init(pairing.partner) != _scales_init(pairing.group)
    if follows_init and not _has_init_key(itertools.chain(*texts_by_cause.values())):
        sentence += "; it starts from other weights too, which may be the cause"
    return sentence


def _has_init_key(texts):
    return any(text.startswith("model.init.") for text in texts)


def _rows_of(group):
    """The row of each sublayer's placement in the table of placements."""
    return [PLACEMENTS[name] for block in placements(group.runs[0].config["model"]) for name in block]


def _scales_init(group):
    """Whether a placement of the group scales the initial weights."""
    return any(row["init_factor"][1] != 0 for row in _rows_of(group))


# ---- a run and its group ----------------------------------------------------------------------------------------


# A run of a group of `groups`. `few`: the labels of those whose difference needs more seeds; `edges`: {group: "largest"
# or "smallest"} of those whose rate is the best and at the edge; `target`: a loss, or None.
Case = namedtuple("Case", "run group groups few edges target")


def on_runs(groups, pairs, rates, target):
    """The remarks of ROWS on each run, with the number of runs: 1."""
    few = {pair["group"] for pair in (*pairs, *rates) if pair["verdict"] == TOO_FEW}
    edges = {pair["best"]: pair["edge"] for pair in rates if pair["edge"]}
    cases = [Case(run, group, groups, few, edges, target) for group in groups for run in group.runs]
    for kind, test, sentence in ROWS:
        for case in cases:
            if test(case):
                yield kind, ": " + (sentence if isinstance(sentence, str) else sentence(case)), case.group, 1


def diverged_text(case):
    """The steps at which runs of a group diverged, the effect on its means, the tensor that was not finite first in the
    first of them, and the command that looks further back."""
    lost = case.group.diverged
    steps = {run: run.diverged_at(run.record.get("steps", 0) + 1) for run in lost}
    first = min(steps, key=steps.get)
    times = "step " if len({*steps.values()}) == 1 else "steps "
    bias = "; its metrics are those of the other seeds, and so biased" if len(lost) < len(case.group.runs) else ""
    culprit = f"; {first_nonfinite(first)} became non-finite first" if first_nonfinite(first) else ""
    return (f"diverged at {times}{listed(map(str, sorted(steps.values())))}{bias}{culprit}; "
            f"scripts/diagnose.py {first} shows what moved before")


def unfinished_text(case):
    """How far runs of a group are that are not done."""
    texts = [f"{printable(run.record['status'])} at step {run.last_step():,} of {run.value(STEPS) or 0:,}"
             for run in case.group.runs if run.record["status"] not in ENDED]
    return f"{listed(texts)}; metrics of a run that is not done are no result"


def listed(texts):
    """The texts, each once, joined by commas."""
    return ", ".join(dict.fromkeys(texts))


def last_loss(case):
    """The last loss of a run that is done, on the validation text if there is one; else NaN."""
    losses = [case.run.record.get(key) for key in ("final_val_loss", "final_train_loss")]
    return next((loss for loss in losses if loss is not None), math.nan) if is_done(case.run) else math.nan


def is_done(run):
    return run.record["status"] == "done"


def is_at_unigram_level(case):
    """Whether the last loss is near the level."""
    return abs(last_loss(case) - case.run.record.get("unigram", math.nan)) < NEAR_LEVEL


def leak_of(case):
    """The end of the remark on a norm whose statistics contain later tokens; None of other norms."""
    return LEAKS.get(NORMS.get(case.group.value(NORM), {}).get("over"))


def is_branch_small(case):
    """Whether the branch_share at the start is so small that the placement of norms can hardly matter. False if the
    placement itself sets the size of the branches, by a norm, a learned scale or the init."""
    share, group = case.run.record.get("branch_share"), case.group
    by_design = any(row["norm_branch"] or row["learned_scale"] or row["init_factor"][1] != 0 for row in _rows_of(group))
    scaled = group.value("model.branch_scale") != 1 or group.value("model.branch_scale_learned") != "none"
    return share is not None and share < SMALL_BRANCH and not scaled and group.value(NORM) != "none" and not by_design


def edge_text(case):
    """The remark on a best learning rate at the edge of those tried."""
    edge, rate = case.edges[case.group], case.group.value(RATE)
    further = "larger" if edge == "largest" else "smaller"
    return f"the best learning rate is the {edge} tried ({rate:.15g}); a {further} one may end at a lower loss"


ROWS = (  # (kind, test of a Case, sentence, or a function that makes it of the Case)
    ("diverged", lambda case: case.run.diverged, diverged_text),
    ("unfinished", lambda case: case.run.record["status"] not in ENDED, unfinished_text),
    ("exploded", lambda case: last_loss(case) > math.log(case.run.record.get("vocab") or math.inf),
     "the loss ends above ln V: worse than guessing each character with equal chance"),
    ("unigram", is_at_unigram_level,
     lambda case: f"the loss ends at the unigram level ({case.run.record['unigram']:.2f} nats): how often each "
     "character occurs has been learnt, and nothing of their order"),
    ("history", lambda case: case.run.history,
     lambda case: f"its config does not say all of its training: {', '.join(case.run.history.values())}"),
    ("leaks", leak_of, lambda case: f"{case.group.value(NORM)} averages over positions, so predictions depend on later "
     f"characters{leak_of(case)}"),
    ("target", lambda case: case.target is not None and not case.run.probe and case.run.record[TO_TARGET] is None,
     lambda case: f"no evaluation is at or below {case.target:g}"),
    ("one_seed", lambda case: len(case.groups) > 1 == len(case.group.runs),
     "one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out ...) become mean ± "
     "standard error here"),
    ("starved", lambda case: is_done(case.run) and case.run.record.get("grad_first_last", 1) < STARVED,
     "hardly any gradient reaches block 1; scripts/measure.py RUN shows whether the vectors of all tokens point the "
     "same way"),
    ("small_branch", is_branch_small,
     "at the start a sublayer adds so little to the stream that the norms' place can hardly matter then"),
    ("few_seeds", lambda case: case.group.label in case.few,
     "too few shared seeds to call a difference clear (*); train more seeds"),
    ("rate_at_edge", lambda case: case.group in case.edges, edge_text))


# ---- what cannot be concluded ---------------------------------------------------------------------------------


def noise_of(groups):
    """[A remark on how far runs are apart by their seeds alone], by the groups in which three seeds or more are done;
    empty without such a group. Two runs of a group are apart by √2 times its standard deviation over seeds."""
    losses = [values_by_seed(group).values() for group in groups]
    apart = sorted(math.sqrt(2) * standard_deviation(values) for values in losses if len(values) > 2)
    if not apart or not math.isfinite(apart[-1]):
        return []
    sizes = dict.fromkeys(f"{value:.2g}" for value in (apart[0], apart[-1]))
    text = (f"final val of two runs that differ in nothing but the seed is {' to '.join(sizes)} apart (standard "
            "deviation, by config); a difference of two single runs means something if it is above "
            f"{2 * apart[-1]:.2g}")
    return [{"text": text, "kind": "noise", "groups": []}]
