"""What can be said of groups of runs side by side: figures, differences seed by seed, remarks."""

import collections
import math
import statistics

from lib.groups import STEPS, base_of, choices, difference, group_by_config, value_text, words
from lib.keys import NORMS, PLACEMENTS
from lib.runs import NORM, PLACEMENT, STEP_BYTES, UNLOGGED, PlotError, np, printable
from lib.sites import SITES, placements

# The columns of figures: key of a run's record, title, how it is written.
FIGURES = [("best_val_loss", "best val", "loss"), ("final_val_loss", "final val", "loss"), ("final_train_loss", "final train", "loss"),
           ("grad_first_last", "grad first/last", "ratio"), ("growth", "growth", "ratio"), ("tokens_per_s", "tokens/s", "speed")]
TO_TARGET, RATE = "steps_to_target", "train.lr"
MANY_COMPARISONS = 5
NEAR_LEVEL = 0.08  # nats from the unigram level: only letter counts are learnt
SMALL_BRANCH = 0.05
STARVED = 1e-3  # grad first/last
ABSURD_LOSS = 100  # above it, digits after the point mean nothing
MOST_NAMES = 6
MOST_STEPS = 20  # before a divergence, that growth is taken over
LEAST_GROWTH = 2.0  # times: less is no growth
NORMAL_QUANTILE = 1.959964  # Student's t at 5%, infinite degrees of freedom


def comparison(runs, base=None, target=None):
    """{"runs", "paired", "rates", "remarks"} of the runs, set against the base (a label or a run folder), else the first group. An
    entry of "runs" has its Group as "group". `target`: a validation loss, the steps to which become a figure."""
    for run in runs if target is not None else ():
        run.record[TO_TARGET] = steps_to(target, run.evaluations())
    columns = FIGURES + ([(TO_TARGET, f"steps to {target:g}", "ratio")] if target is not None else [])
    groups = group_by_config(runs)
    base = base_of(groups, base)
    key = next(iter(base.varied), PLACEMENT)
    partners = partners_of(groups, base, key)
    pairs = list(filter(None, (pair_of(group, partner, key) for group, partner in partners.items())))
    return {"runs": [entry_of(group, base, columns) for group in groups], "paired": pairs, "rates": best_rates(groups),
            "remarks": remarks_on(groups, partners, key, len(pairs), target)}


def entry_of(group, base, columns=FIGURES):
    """A group's row of the table, for programs and for people."""
    times = collections.Counter(sorted(printable(run.record["status"]) for run in group.runs))
    figures = {}
    for key, title, kind in columns:
        values = group.figures(key)
        figures[key] = {"title": title, "mean": statistics.fmean(values) if values else None, "sd": spread(values), "n": len(values),
                        "text": figure_text(values, kind)}
    return {"group": group, "label": group.label, "keys": group.varied, "choices": choices(base, group),
            "seeds": [run.seed for run in group.runs], "folders": [str(run.folder) for run in group.runs],
            "placement": words(PLACEMENT, group.runs[0].value(PLACEMENT)),
            "norm": group.value(NORM), "n_layer": group.runs[0].value("model.n_layer"),
            "params": group.runs[0].record.get("params", 0),
            "status": ", ".join(name if len(times) == 1 else f"{count} {name}" for name, count in times.items()), "figures": figures}


def steps_to(target, evaluations):
    """The steps to a validation loss, linear between evaluations; None if none is as low. `evaluations`: an array of rows
    (step, loss)."""
    reached = np.flatnonzero(evaluations[:, 1] <= target)
    if not reached.size:
        return None
    steps, losses = evaluations[max(reached[0] - 1, 0):reached[0] + 1].T
    return float(np.interp(target, losses[::-1], steps[::-1]))


# ---- figures --------------------------------------------------------------------------------------------------


def spread(values):
    """The sample standard deviation; None of fewer than two values."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def standard_error(values):
    """The standard error of the mean; None of fewer than two values."""
    return None if len(values) < 2 else spread(values) / math.sqrt(len(values))


def figure_text(values, kind):
    """ "2.550 ± 0.050", "2.5123", "-". A speed has no error, which would describe the machine's other load."""
    if not values:
        return "-"
    mean, error = statistics.fmean(values), standard_error(values)
    if kind == "speed":
        return f"{mean / 1e3:,.1f}k"
    if error is not None and math.isfinite(error):
        return with_error(mean, error)
    return f"{mean:.4f}" if kind == "loss" and abs(mean) < ABSURD_LOSS else f"{mean:.3g}"


def with_error(mean, error):
    """ "-0.061 ± 0.039": two significant digits of the error, and as many of the mean after the point."""
    digits = 1 - math.floor(math.log10(error)) if error > 0 else -1
    if not 0 <= digits <= 6:
        return f"{mean:.3g} ± {error:.2g}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


# ---- differences seed by seed ---------------------------------------------------------------------------------


def partners_of(groups, base, key):
    """{group: the group that it is set against}, in the order of the groups: one with the base's value of `key` that has chosen all
    else alike; where there is none, an earlier one that differs in one choice, or else the base. The base, and those with its value of
    `key` that others are set against, have no entry."""
    at_base = [group for group in groups if group.value(key) == base.value(key)]
    partners = {group: other for group in groups if group not in at_base for other in reversed(at_base) if choices(other, group) == [key]}
    bases = {base, *partners.values()}
    for place, group in enumerate(groups):
        if group not in partners and group not in bases:
            partners[group] = next((other for other in groups[:place] if len(choices(other, group)) == 1), base)
    return {group: partners[group] for group in groups if group in partners}


def pair_of(group, base, key):
    """Final validation losses of a group minus the base's, seed by seed: the effect of a seed (initial weights, batches) cancels in
    the difference. None if losses cannot be compared or fewer than two seeds are shared. `setting`: what the label says of the keys
    but `key`, None if more than `key` differs; `values`: what it says of `key`, of group and base."""
    of_base = _losses_by_seed(base)
    differences = [loss - of_base[seed] for seed, loss in sorted(_losses_by_seed(group).items()) if seed in of_base]
    if len(differences) < 2 or incomparable_keys(base, group):
        return None
    mean, error = statistics.fmean(differences), standard_error(differences)
    lower, lost = sum(d < 0 for d in differences), base.diverged or group.diverged
    verdict = verdict_on(differences)
    return {"group": group.label, "base": base.label, "mean": mean, "standard_error": error, "n": len(differences), "verdict": verdict,
            "difference": ("+" if mean > 0 else "") + with_error(mean, error),
            "text": f"lower in {lower} of {len(differences)} shared seeds{' that did not diverge' if lost else ''}: {verdict}",
            "base_loss": figure_text(base.figures("final_val_loss"), "loss"),
            "setting": base.words(base.varied.keys() - {key}) if choices(base, group) == [key] else None,
            "values": [group.words([key]), base.words([key])]}


def best_rates(groups):
    """A pair_of for each set of groups that differ in the learning rate alone: the one of the lowest final loss is its base, the next its
    group. A group takes part whose seeds, two at least, are all done."""
    def loss(group):
        return statistics.fmean(_losses_by_seed(group).values())

    whole, found = [group for group in groups if len(_losses_by_seed(group)) == len(group.runs) > 1], []
    for best in whole:
        others = sorted((group for group in whole if choices(best, group) == [RATE]), key=loss)
        if others and loss(best) < loss(others[0]) and (pair := pair_of(others[0], best, RATE)):
            found.append({**pair, "rates": [others[0].value(RATE), best.value(RATE)]})
    return found


def _losses_by_seed(group):
    return {run.seed: run.record["final_val_loss"] for run in group.runs
            if run.record["status"] == "done" and run.record.get("final_val_loss") is not None}


def verdict_on(differences):
    """The verdict on differences seed by seed, by Student's t at 5%."""
    if not any(differences):
        return "the same losses"
    error = standard_error(differences)
    t = abs(statistics.fmean(differences)) / error if error > 0 else math.inf
    if not t >= NORMAL_QUANTILE:
        return "cannot be told apart"
    if len(differences) == 2:
        return "too few seeds to tell from chance"
    clear = two_sided_p(t, len(differences) - 1) <= 0.05
    return "a clear difference" if clear else "perhaps a difference; too few seeds to tell"


def two_sided_p(t, degrees):
    """The probability that Student's t with this many degrees of freedom lies further from 0 than `t`: 1 - P(-t < T < t) by the finite
    series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even), whose terms are all positive."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(3 if odd else 2, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    return 1 - (2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total)


def incomparable_keys(a, b):
    """The keys that make the losses of two groups incomparable."""
    return [key for key, *_ in difference(a, b) if key.startswith("data.") or key == STEPS]


# ---- remarks --------------------------------------------------------------------------------------------------


def entries_of(sentences, total):
    """[{"text", "kind", "groups"}] of {(kind, sentence): {group: runs of which it is true}}. A sentence about all of more than two
    groups begins with "all"."""
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


def remarks_on(groups, partners, key, pairs=0, target=None):
    """What sets each group apart from the one that it is set against, what stands out, and what cannot be concluded. `pairs`: the
    number of differences seed by seed."""
    sentences = collections.defaultdict(collections.Counter)
    is_grid = len(set(partners.values())) > 1
    for group, base in partners.items():
        in_setting = is_grid and choices(base, group) == [key]
        named = f"{base.words([key])} in the same setting" if in_setting else base.label
        sentences["differs", f" against {named}: {difference_text(base, group)}"][group] = len(group.runs)
        if keys := incomparable_keys(base, group):
            losses = f": losses are not comparable with those of {base.label}: other {', '.join(keys)}"
            sentences["not_comparable", losses][group] = len(group.runs)
    for group in groups:
        for run in group.runs:
            for kind, sentence in remarks_on_run(group, run, target):
                sentences[kind, ": " + sentence][group] += 1
    for group in groups:
        if len(groups) > 1 and len(group.runs) == 1:
            chance = "small differences may be chance; more seeds (--set train.seed=2 --out ...) become mean ± standard error here"
            sentences["one_seed", f": one seed a config: {chance}"][group] = 1
    entries = entries_of(sentences, len(groups))
    if pairs >= MANY_COMPARISONS:
        entries.append({"text": f"{pairs} differences: where there is none, chance still calls one in 20 clear", "kind": "many_comparisons",
                        "groups": []})
    return entries


def difference_text(base, group):
    """The differences between a group and the base, and whether they are one cause. Values in the label are not repeated."""
    causes, derived, init = [], [], {False: False, True: _scales_init(base) != _scales_init(group)}
    for key, was, now, follows in difference(base, group):
        values = "" if key in group.labelled else printable(f" {value_text(was)} -> {value_text(now)}")
        (derived if follows else causes).append(key + values)
        init[follows] |= key.startswith("model.init.")
    words = ", ".join(causes) or "the same config"
    if derived:
        words += "; with that comes " + ", ".join(derived)
    if len(causes) > 1:
        return f"{words}; {len(causes)} choices at once: which is the cause cannot be told from these two"
    return words + ("; it starts from other weights too, which may be the cause" if init[True] and not init[False] else "")


def _rows_of(group):
    """The rows of the placements of all sublayers."""
    run = group.runs[0]
    return [PLACEMENTS[name] for block in placements(run.config["model"], run.value("model.n_layer")) for name in block]


def _scales_init(group):
    return any(row["init_gain"][1] != 0 for row in _rows_of(group))


def remarks_on_run(group, run, target=None):
    """[(kind, sentence)] on one run: its status, its last losses, its model."""
    record, found = run.record, []
    loss = record["final_val_loss"] if record.get("final_val_loss") is not None else record.get("final_train_loss")
    if record["status"] == "diverged":
        step = run.lost_at(record.get("steps", 0) + 1)
        bias = "; figures are of the other seeds, and so biased" if len(group.diverged) < len(group.runs) else ""
        found.append(("diverged", f"diverged at step {step}{bias}{divergence_text(run, step)}"))
    elif record["status"] == "done" and loss is not None:
        if record.get("vocab") and loss > math.log(record["vocab"]):
            found.append(("exploded", "the loss ends above ln V: worse than guessing each character with equal chance"))
        level = record.get("unigram")
        if level is not None and abs(loss - level) < NEAR_LEVEL:
            found.append(("unigram", f"the loss ends at the unigram level ({level:.2f} nats): how often each character occurs has been "
                          "learnt, and nothing of their order"))
        if record.get("grad_first_last", 1) < STARVED:
            found.append(("starved", f"hardly any gradient reaches block 1; scripts/measure.py {group.runs[0]} shows whether all tokens "
                          "have become one vector"))
    elif record["status"] not in ("done", "probe"):
        found.append(("unfinished", f"{printable(record['status'])} at step {record.get('steps', 0):,} of {run.value(STEPS) or 0:,}; "
                      "figures of a run that is not done are no result"))
    if branch_too_small(group, record.get("branch_share")):
        found.append(("small_branch", "at the start a sublayer adds so little to the stream that the norms' place can hardly matter"))
    row = NORMS.get(group.value(NORM), {})
    if row.get("over") in ("batch", "sequence"):  # statistics over positions contain later tokens
        found.append(("leaks", f"{group.value(NORM)} averages over positions, so a prediction knows of later characters" + (
            " in training; its training loss is not that of a causal model" if row["over"] == "batch"
            else "; its losses are not those of a causal model")))
    if target is not None and not run.probe and record[TO_TARGET] is None:
        found.append(("target", f"no evaluation is at or below {target:g}; steps to it are of the other seeds"))
    return found


def branch_too_small(group, share):
    """Whether the branch_share at the start is so small that the norms' place can hardly matter. False if the placement itself sets
    the size of the branches by a norm, a learned scale or the init."""
    by_design = any(row["norm_branch"] or row["learned_scale"] or row["init_gain"][1] != 0 for row in _rows_of(group))
    scaled = group.value("model.branch_scale") != 1 or group.value("model.branch_scale_learned") != "none"
    return share is not None and share < SMALL_BRANCH and not scaled and group.value(NORM) != "none" and not by_design


# ---- what a diverged run says of its end ----------------------------------------------------------------------


def divergence_text(run, step):
    """ "; the gradient of block 1 ffn_hidden became non-finite; activations had grown 30 times since step 20 (most: block 12 stream)":
    the first tensor that was not finite as summary.json has it, and what grew most in the steps before."""
    first = run.summary.get("first_nonfinite")
    depth = run.value("model.n_layer")
    text = ""
    if isinstance(first, dict) and isinstance(first.get("layer"), int):
        place = first.get("param") or _place_text(first["layer"], first.get("site"), depth)
        text = f"; {'the gradient of ' if first.get('kind') == 'gradient' else ''}{printable(place)} became non-finite"
    return text + "; " + (_growth_of_layers(run, step) or "nothing is logged of the layers before")


def _place_text(layer, site, depth):
    ends = {0: "the embedding", depth + 1: "the final activation" if site == "final" else f"the {site}"}
    return ends.get(layer, f"block {layer} {site}")


def _growth_of_layers(run, step):
    """What grew most in the sites' rms and gradients before the step, and in what is still finite at it; "" where nothing is logged."""
    names, depth = (*SITES, "final", "logits"), run.value("model.n_layer")
    try:
        rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names),
                        last=(MOST_STEPS + 2) * STEP_BYTES * (depth + 2))
    except PlotError:
        return ""
    steps = np.unique(rows[rows[:, 0] < step, 0])[-MOST_STEPS:]
    if not steps.size:
        return ""
    then, latest, failing = ({(row[1], row[4]): row[2:4] for row in rows[rows[:, 0] == at]} for at in (steps[0], steps[-1], step))
    grown = []
    for column, what in enumerate(("activations", "gradients")):
        ratios = [(now[place][column] / then[place][column], place) for now in (latest, failing) for place in now
                  if place in then and then[place][column] > 0 and np.isfinite(now[place][column])]
        times, (layer, site) = max(ratios, key=lambda ratio: ratio[0], default=(0, (0, 0)))
        if times >= LEAST_GROWTH:
            grown.append(f"{what} had grown {times:.3g} times since step {steps[0]:.0f} (most: "
                         f"{_place_text(int(layer), names[int(site)], depth)})")
    return ", ".join(grown) or f"nothing had grown since step {steps[0]:.0f}"
