"""The comparison of groups of runs: metrics, differences seed by seed, remarks."""

import collections
import itertools
import math
import statistics

from lib.groups import STEPS, base_of, choices, difference, group_by_config, config_text, named_choices, value_text
from lib.keys import NORMS, PLACEMENTS, placements
from lib.pairs import (TOO_FEW, best_rates, metric_text, incomparable_keys, pair_of, partners_of, repeats_of,
                       standard_deviation, standard_error)
from lib.command import ScriptError, printable
from lib.runs import NORM, PLACEMENT, STEP_BYTES, UNLOGGED, np
from lib.sites import SITES

# The columns of metrics: key of a run's record, title, and the kind that pairs.metric_text takes.
METRICS = [("best_val_loss", "best val", "loss"), ("final_val_loss", "final val", "loss"),
           ("final_train_loss", "final train", "loss"), ("grad_first_last", "grad first/last", "ratio"),
           ("growth", "growth", "ratio"), ("tokens_per_s", "tokens/s", "speed")]
AXES = {"steps": "count", "tokens": "count", "seconds": "ratio"}  # {metric to a target: kind, as above}
TO_TARGET = "steps_to_target"
MANY_COMPARISONS = 5
NEAR_LEVEL = 0.08  # nats from the unigram level: only letter counts are learnt
SMALL_BRANCH = 0.05  # of the stream's rms
OTHER_WEIGHTS = 0.05  # share by which numbers of weights may differ without a remark
SIZE_KEYS = {"model.n_layer", "model.d_model", "model.d_ff"}
STARVED = 1e-3  # grad first/last
MOST_NAMES = 6
MOST_STEPS = 20  # logged steps before a divergence over which growth is measured
LEAST_GROWTH = 2.0  # a factor; less is not called growth


def comparison(runs, base=None, target=None):
    """{"key", "runs", "paired", "rates", "remarks"} of the runs. "key": the compared key, by which pairs.partners_of
    chooses pairs; "runs": a list of entry_of each group; "paired" and "rates": lists of pair_of; "remarks": as
    entries_of has them. `base`: a label or a run folder, by default the first group. `target`: a validation loss; the
    steps, tokens and seconds to it become metrics. ScriptError: no group is the base."""
    columns = METRICS
    if target is not None:
        columns = METRICS + [(f"{axis}_to_target", f"{axis} to {target:g}", kind) for axis, kind in AXES.items()]
        for run in runs:
            run.record |= reached(target, run)
    groups = group_by_config(runs)
    base = base_of(groups, base)
    compared_key = next(iter(base.varied), PLACEMENT)
    partners, repeats = partners_of(groups, base, compared_key), repeats_of(groups, base)
    pairs = list(filter(None, (pair_of(group, partner, compared_key) for group, partner in partners.items())))
    rates = best_rates([group for group in groups if group not in repeats])
    return {"key": compared_key, "runs": [entry_of(group, base, columns) for group in groups], "paired": pairs,
            "rates": rates, "remarks": remarks_on(groups, partners, compared_key, pairs, rates, target)}


def entry_of(group, base, columns=METRICS):
    """A row of the table: the Group as "group", facts about it, and its metrics as "figures", {key: {"title", "text",
    "mean", "n", "sd", "standard_error"}}; a metric to a target also has "at_most", whether the mean is an upper
    bound."""
    counts = collections.Counter(sorted(printable(run.record["status"]) for run in group.runs))
    metrics = {}
    for key, title, kind in columns:
        values = group.metric_values(key)
        metrics[key] = {"title": title, "mean": statistics.fmean(values) if values else None, "n": len(values),
                        "sd": standard_deviation(values), "standard_error": standard_error(values),
                        "text": metric_text(values, kind)}
        if key.endswith("_to_target"):
            metrics[key]["at_most"] = is_bound = bool(values) and any(group.metric_values("target_at_most"))
            if is_bound:
                metrics[key]["text"] = "≤ " + metric_text([statistics.fmean(values)], kind)
    return {"group": group, "label": group.label, "keys": group.varied, "choices": choices(base, group),
            "seeds": [run.seed for run in group.runs], "folders": [str(run.folder) for run in group.runs],
            "placement": value_text(PLACEMENT, group.runs[0].value(PLACEMENT)),
            "norm": group.value(NORM), "n_layer": group.runs[0].value("model.n_layer"),
            "params": group.runs[0].record.get("params", 0),
            "status": ", ".join(name if len(counts) == 1 else f"{count} {name}" for name, count in counts.items()),
            "figures": metrics}


def reached(target, run):
    """{"steps_to_target", "tokens_to_target", "seconds_to_target", "target_at_most"}: the steps, tokens and seconds
    after which a run's validation loss came down to the target, linear between evaluations; None if no evaluation is
    as low, or if the logs lack the column. "target_at_most": whether the first evaluation is already below the target,
    so that the numbers are upper bounds."""
    steps, losses = run.evaluations().T
    below = np.flatnonzero(losses <= target)
    if not below.size:
        return {TO_TARGET: None}
    last = below[0]
    pair = slice(max(last - 1, 0), last + 1)
    step = float(np.interp(target, losses[pair][::-1], steps[pair][::-1]))
    record = {TO_TARGET: step, "target_at_most": bool(last == 0 and losses[0] < target)}
    for axis in ("tokens", "seconds"):
        logged, values = run.progress(axis).T
        is_known = logged.size and logged[-1] >= step
        record[f"{axis}_to_target"] = float(np.interp(step, [0, *logged], [0, *values])) if is_known else None
    return record


# ---- remarks --------------------------------------------------------------------------------------------------


def entries_of(sentences, total):
    """[{"text", "kind", "groups"}] of `sentences`, {(kind, sentence): {group: number of its runs that it is true of}};
    `total`: the number of groups. A sentence about all of more than two groups begins with "all"."""
    entries = []
    for (kind, sentence), groups in sentences.items():
        labels = [group.label for group in groups]
        names = [group.label + ("" if count == len(group.runs) else f" ({count} of {len(group.runs)} seeds)")
                 for group, count in groups.items()]
        is_of_all = labels == names and len(names) == total > 2
        if len(names) > MOST_NAMES:
            names[MOST_NAMES - 1:] = [f"{len(names) - MOST_NAMES + 1} more"]
        entries.append({"text": ("all" if is_of_all else ", ".join(names)) + sentence, "kind": kind, "groups": labels})
    return entries


def remarks_on(groups, partners, compared_key, pairs=(), rates=(), target=None):
    """Remarks, as entries_of has them: how each group differs from its partner, which of its results stand out, and
    what cannot be concluded. `pairs` and `rates`: the differences seed by seed, and those between learning rates."""
    sentences = collections.defaultdict(collections.Counter)
    grid = {group: base for group, base in partners.items() if choices(base, group) == [compared_key]}
    for group, base in partners.items():
        is_in_grid = group in grid and len(set(grid.values())) > 1
        base_value = value_text(compared_key, base.value(compared_key))
        base_text = f"{base_value} in the same setting" if is_in_grid else base.label
        for kind, sentence in remarks_on_partner(group, base, base_text):
            sentences[kind, sentence][group] = len(group.runs)
    for group in groups:
        for run in group.runs:
            for kind, sentence in remarks_on_run(group, run, target):
                sentences[kind, ": " + sentence][group] += 1
        if len(groups) > 1 and len(group.runs) == 1:
            sentence = (": one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out "
                        "...) become mean ± standard error here")
            sentences["one_seed", sentence][group] = 1
    for group in groups:
        if any(pair["group"] == group.label and pair["verdict"] == TOO_FEW for pair in (*pairs, *rates)):
            sentence = ": two shared seeds are too few to call a difference clear (*); train a third"
            sentences["two_seeds", sentence][group] = len(group.runs)
    for pair in rates:
        if pair["edge"]:
            best, beyond = pair["rates"][1], "larger" if pair["edge"] == "largest" else "smaller"
            sentence = (f": the best learning rate is the {pair['edge']} tried ({best:.15g}); a {beyond} one may end "
                        "at a lower loss")
            sentences["rate_at_edge", sentence][pair["best"]] = len(pair["best"].runs)
    digits = {group: {digits_of(run) for run in group.runs} - {None} for group in groups}
    if len(set().union(*digits.values())) > 1:
        for group, kinds in digits.items():
            for kind in kinds - {"portable"}:
                sentence = (f": the digits are {printable(kind)}, those of other runs are not; by chance alone losses "
                            "differ a little")
                sentences["digits", sentence][group] = len(group.runs)
    entries = entries_of(sentences, len(groups)) + noise_of(groups)
    if len(pairs) >= MANY_COMPARISONS:
        text = f"{len(pairs)} differences: if there is none in truth, chance still calls one in 20 clear"
        entries.append({"text": text, "kind": "many_comparisons", "groups": []})
    return entries


def noise_of(groups):
    """An entry on how far runs are apart by their seeds alone, of the groups in which three seeds or more are done; an
    empty list without such a group."""
    losses = [[run.record["final_val_loss"] for run in group.runs if run.record["status"] == "done"
               and run.record.get("final_val_loss") is not None] for group in groups]
    apart = sorted(math.sqrt(2) * standard_deviation(of_group) for of_group in losses if len(of_group) > 2)
    if not apart or not math.isfinite(apart[-1]):
        return []
    sizes = dict.fromkeys(f"{value:.2g}" for value in (apart[0], apart[-1]))
    return [{"text": f"final val of two runs that differ in nothing but the seed is {' to '.join(sizes)} apart "
                     "(standard deviation, by config); a difference of two single runs means something from twice that",
             "kind": "noise", "groups": []}]


def digits_of(run):
    """Whether a run's numbers are portable: "portable", or the reason why not and the processor; None if unknown."""
    summary = run.summary
    digits = summary.get("digits")
    return digits if digits in (None, "portable") else f"{digits} ({summary.get('isa')}, {summary.get('cpu')})"


def remarks_on_partner(group, base, base_text):
    """[(kind, sentence after the group's label)] on the difference between a group and its partner `base`. `base_text`:
    the words for that partner."""
    if group.keys == base.keys:
        return [("repeat", f": repeats {base.label}: the configs are the same, so no key explains a difference")]
    remarks = [("differs", f" against {base_text}: {difference_text(base, group)}")]
    if keys := incomparable_keys(base, group):
        names = ", ".join(f"{key} (at unequal tokens)" if key == STEPS else key for key in keys)
        remarks.append(("not_comparable", f": losses are not comparable with those of {base.label}: other {names}"))
    if sentence := weights_text(base, group, base_text):
        remarks.append(("weights", sentence))
    return remarks


def weights_text(base, group, base_text):
    """ ": 50% more weights than gelu; model.d_ff 171 makes them equal" if the numbers of weights differ by over 5%
    although nobody changed a size key; else "". A d_ff is named if the groups differ in the activation."""
    sizes = [group_or_base.runs[0].record.get("params") or 0 for group_or_base in (base, group)]
    chosen = [key for key, *_, follows in difference(base, group) if not follows]
    if min(sizes) <= 0 or abs(sizes[1] / sizes[0] - 1) <= OTHER_WEIGHTS or {"data.path", *SIZE_KEYS} & set(chosen):
        return ""
    text = f": {abs(sizes[1] / sizes[0] - 1):.0%} {'more' if sizes[1] > sizes[0] else 'fewer'} weights than {base_text}"
    width, layers, hidden = (group.value(key) for key in ("model.d_model", "model.n_layer", "model.d_ff"))
    inward = 2 if group.value("model.activation") == "swiglu" else 1  # matrices that write the hidden layer
    biases = inward if group.value("model.ffn_bias") else 0
    each = layers * ((inward + 1) * width + biases)  # weights of one hidden feature
    equal = round(hidden + (sizes[0] - sizes[1]) / each)
    return text + (f"; model.d_ff {equal} makes them equal" if "model.activation" in chosen and equal > 0 else "")


def difference_text(base, group):
    """The keys in which a group differs from the base: first the chosen ones, then those that follow from them. If
    several were chosen, the text says that no single cause can be named. Values already in the label are not repeated.
    A grid entry with named values is one choice, followed by the keys that it sets:

        model.norm_placement; with that comes model.final_norm true -> false
        batch (train.batch_size 8 -> 2, train.steps 300 -> 1200), train.lr; 2 choices at once: which is the cause …
    """
    entries = named_choices(base, group)
    entry_of_key = {key: entry for entry, keys in entries.items() for key in keys}
    set_by_entry = {entry: [] for entry in entries}
    chosen, derived = [], []
    for key, base_value, value, follows in difference(base, group):
        values = printable(f" {config_text(base_value)} -> {config_text(value)}")
        text = key + ("" if key in group.labelled else values)
        if key in entry_of_key:
            set_by_entry[entry_of_key[key]].append(text)
        else:
            (derived if follows else chosen).append(text)
    causes = [f"{printable(entry)} ({', '.join(texts)})" for entry, texts in set_by_entry.items()] + chosen
    sentence = ", ".join(causes) or "the same config"
    if derived:
        sentence += "; with that comes " + ", ".join(derived)
    if len(causes) > 1:
        return f"{sentence}; {len(causes)} choices at once: which is the cause cannot be told from these two"
    has_other_init = _has_init_key(derived) or _scales_init(base) != _scales_init(group)
    chose_init = _has_init_key(itertools.chain(chosen, *set_by_entry.values()))
    other_start = "; it starts from other weights too, which may be the cause"
    return sentence + (other_start if has_other_init and not chose_init else "")


def _has_init_key(texts):
    return any(text.startswith("model.init.") for text in texts)


def _rows_of(group):
    """The row of each sublayer's placement in the table of placements."""
    return [PLACEMENTS[name] for block in placements(group.runs[0].config["model"]) for name in block]


def _scales_init(group):
    """Whether a placement of the group scales the initial weights."""
    return any(row["init_gain"][1] != 0 for row in _rows_of(group))


def remarks_on_run(group, run, target=None):
    """[(kind, sentence)] on one run: its status, its last losses, its model."""
    record, remarks = run.record, []
    loss = record["final_val_loss"] if record.get("final_val_loss") is not None else record.get("final_train_loss")
    if record["status"] == "diverged":
        step = run.diverged_at(record.get("steps", 0) + 1)
        has_survivors = len(group.diverged) < len(group.runs)
        bias = "; its metrics are those of the other seeds, and so biased" if has_survivors else ""
        remarks.append(("diverged", f"diverged at step {step}{bias}{divergence_text(run, step)}"))
    elif record["status"] == "done" and loss is not None:
        if record.get("vocab") and loss > math.log(record["vocab"]):
            remarks.append(("exploded",
                            "the loss ends above ln V: worse than guessing each character with equal chance"))
        level = record.get("unigram")
        if level is not None and abs(loss - level) < NEAR_LEVEL:
            remarks.append(("unigram", f"the loss ends at the unigram level ({level:.2f} nats): how often each "
                            "character occurs has been learnt, and nothing of their order"))
        if record.get("grad_first_last", 1) < STARVED:
            remarks.append(("starved", f"hardly any gradient reaches block 1; scripts/measure.py {group.runs[0]} shows "
                            "whether all tokens have become one vector"))
    elif record["status"] not in ("done", "probe"):
        steps = f"{record.get('steps', 0):,} of {run.value(STEPS) or 0:,}"
        remarks.append(("unfinished", f"{printable(record['status'])} at step {steps}; metrics of a run that is not "
                        "done are no result"))
    if branch_too_small(group, record.get("branch_share")):
        remarks.append(("small_branch", "at the start a sublayer adds so little to the stream that the norms' place "
                        "can hardly matter"))
    row = NORMS.get(group.value(NORM), {})
    if row.get("over") in ("batch", "sequence"):  # statistics over positions contain later tokens
        leak = "; its losses are not those of a causal model"
        if row["over"] == "batch":
            leak = " in training; its training loss is not that of a causal model"
        remarks.append(("leaks", f"{group.value(NORM)} averages over positions, so predictions depend on later "
                        f"characters{leak}"))
    if target is not None and not run.probe and record[TO_TARGET] is None:
        reached_by_others = any(other.record.get(TO_TARGET) is not None for other in group.runs)
        others = "; the steps to it are those of the other seeds" if reached_by_others else ""
        remarks.append(("target", f"no evaluation is at or below {target:g}{others}"))
    return remarks


def branch_too_small(group, share):
    """Whether the branch_share at the start is so small that the placement of norms can hardly matter. False if the
    placement itself sets the size of the branches, by a norm, a learned scale or the init."""
    by_design = any(row["norm_branch"] or row["learned_scale"] or row["init_gain"][1] != 0 for row in _rows_of(group))
    scaled = group.value("model.branch_scale") != 1 or group.value("model.branch_scale_learned") != "none"
    return share is not None and share < SMALL_BRANCH and not scaled and group.value(NORM) != "none" and not by_design


# ---- how a run diverged ----------------------------------------------------------------------


def divergence_text(run, step):
    """ "; the gradient of block 1 ffn_hidden became non-finite; activations had grown 30 times since step 20 (most:
    block 12 stream)": the first tensor that was not finite, from summary.json, and the largest growth in the steps
    before."""
    first = run.summary.get("first_nonfinite")
    depth = run.value("model.n_layer")
    text = ""
    if isinstance(first, dict) and isinstance(first.get("layer"), int):
        tensor = first.get("param") or _site_text(first["layer"], first.get("site"), depth)
        text = f"; {'the gradient of ' if first.get('kind') == 'gradient' else ''}{printable(tensor)} became non-finite"
    return text + "; " + (_growth_of_layers(run, step) or "nothing is logged of the layers before")


def _site_text(layer, site, depth):
    ends = {0: "the embedding", depth + 1: "the final activation" if site == "final" else f"the {site}"}
    return ends.get(layer, f"block {layer} {site}")


def _growth_of_layers(run, step):
    """The largest growth of the sites' activations and gradients before the step, and at it where they are still
    finite; "" if nothing is logged."""
    names, depth = (*SITES, "final", "logits"), run.value("model.n_layer")
    try:
        rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names),
                        last=(MOST_STEPS + 2) * STEP_BYTES * (depth + 2))
    except ScriptError:
        return ""
    steps = np.unique(rows[rows[:, 0] < step, 0])[-MOST_STEPS:]
    if not steps.size:
        return ""
    # {(layer, site): [rms, grad_rms]} at the first and the last of these steps and at the one that diverged
    first, latest, failing = ({(row[1], row[4]): row[2:4] for row in rows[rows[:, 0] == at]}
                              for at in (steps[0], steps[-1], step))
    grown = []
    for column, quantity in enumerate(("activations", "gradients")):
        ratios = [(now[site][column] / first[site][column], site) for now in (latest, failing) for site in now
                  if site in first and first[site][column] > 0 and np.isfinite(now[site][column])]
        ratio, (layer, name) = max(ratios, key=lambda entry: entry[0], default=(0, (0, 0)))
        if ratio >= LEAST_GROWTH:
            grown.append(f"{quantity} had grown {ratio:.3g} times since step {steps[0]:.0f} (most: "
                         f"{_site_text(int(layer), names[int(name)], depth)})")
    return ", ".join(grown) or f"nothing had grown since step {steps[0]:.0f}"
