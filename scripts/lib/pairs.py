"""Differences between groups of runs, seed by seed: which group each is subtracted from, and what the differences
show."""

import math
import statistics

from lib.groups import SEED, STEPS, choices, difference, same_tokens, words

RATE = "train.lr"
LARGE_LOSS = 100  # above it, digits after the point mean nothing
TOO_FEW = "too few seeds to tell from chance"
NORMAL_QUANTILE = 1.959964  # Student's t at 5%, infinite degrees of freedom


# ---- which group each group is subtracted from ------------------------------------------------------------------


def repeats_of(groups, base):
    """{group: the group whose config it repeats}: the base, or else the first group, stands for its config."""
    first = {str(base.keys): base}
    for group in groups:
        first.setdefault(str(group.keys), group)
    return {group: first[str(group.keys)] for group in groups if first[str(group.keys)] is not group}


def partners_of(groups, base, key):
    """{group: its partner}: which group is subtracted from which, in the order of the groups. The first rule that fits
    decides:

    1. Repeat. The partner of a group with the base's config is the base; that of a group with an earlier group's config
       is the earlier group. The rules below pass over repeats.
    2. Grid. The partner of a group with another value of `key` than the base is the group with the base's value of `key`
       and the same value of every other chosen key.
    3. Neighbour. The partner of another group is the first earlier group that differs from it in one choice.
    4. Base. The partner of the remaining groups is the base.

    The base has no partner, nor has a group that is a partner by rule 2. An example with placement as `key`, in which the
    first group is the base:

        A  pre   L 6
        B  post  L 6             B - A   grid
        C  pre   L 12                    (a partner by rule 2)
        D  post  L 12            D - C   grid
        E  post  L 6   rmsnorm   E - B   neighbour: there is no pre, L 6, rmsnorm; B has another norm and nothing else
        F  pre   L 6             F - A   repeat
        G  post  L 24  lr 0.1    G - A   base: every earlier group differs in two choices or more
    """
    repeats = repeats_of(groups, base)
    groups_once = [group for group in groups if group not in repeats]
    at_base = [group for group in groups_once if group.value(key) == base.value(key)]
    grid, others = {}, {}
    for group in groups_once:
        same_setting = (other for other in at_base if choices(other, group) == [key])
        if group not in at_base and (partner := next(same_setting, None)):
            grid[group] = partner
    paired = {base, *grid, *grid.values()}
    for place, group in enumerate(groups_once):
        if group not in paired:
            neighbours = (other for other in groups_once[:place] if len(choices(other, group)) == 1)
            others[group] = next(neighbours, base)
    partners = {**repeats, **grid, **others}
    return {group: partners[group] for group in groups if group in partners}


# ---- differences ------------------------------------------------------------------------------------------------


def pair_of(group, base, key):
    """Final validation losses of a group minus the base's, seed by seed: the effect of a seed (initial weights,
    batches) cancels in the difference. None if losses cannot be compared or fewer than two seeds are shared.
    `setting`: what the base's label says without `key`, None if more than `key` differs; `values`: the values of `key`
    of group and base, in words."""
    base_losses = _losses_by_seed(base)
    losses = sorted(_losses_by_seed(group).items())
    differences = [loss - base_losses[seed] for seed, loss in losses if seed in base_losses]
    if len(differences) < 2 or incomparable_keys(base, group):
        return None
    mean, error = statistics.fmean(differences), standard_error(differences)
    lower, verdict = sum(d < 0 for d in differences), verdict_on(differences)
    is_repeat = group.keys == base.keys
    survivors = " that did not diverge" if base.diverged or group.diverged else ""
    count = f"lower in {lower} of {len(differences)} shared seeds{survivors}"
    return {"group": group.label, "base": base.label, "mean": mean, "standard_error": error, "n": len(differences),
            "verdict": verdict, "repeat": is_repeat, "difference": ("+" if mean > 0 else "") + with_error(mean, error),
            "text": f"{'a repeat; ' if is_repeat else ''}{count}: {verdict}",
            "base_loss": figure_text(base.figures("final_val_loss"), "loss"),
            "setting": setting_text(base, key) if choices(base, group) == [key] else None,
            "values": [words(key, group.value(key)), words(key, base.value(key))]}


def setting_text(group, key):
    """What the group's label says of the keys other than `key`."""
    return " · ".join(text for name, text in group.parts.items() if name != key)


def best_rates(groups):
    """A pair_of for each set of groups that differ in the learning rate alone, of which the lowest final loss is the
    base and the next is the group. Only groups with two or more seeds, all done, take part. `groups`: those without
    repeats. Further members: `rates`, of group and base; `best`, the base's Group; `edge`: "largest" or "smallest" if
    no rate above or below the best was tried."""
    def loss(group):
        return statistics.fmean(_losses_by_seed(group).values())

    whole, pairs = [group for group in groups if len(_losses_by_seed(group)) == len(group.runs) > 1], []
    for best in whole:
        others = [group for group in groups if choices(best, group) == [RATE]]
        compared = sorted((group for group in others if group in whole), key=loss)
        if compared and loss(best) < loss(compared[0]) and (pair := pair_of(compared[0], best, RATE)):
            rate, tried = best.value(RATE), [group.value(RATE) for group in others]
            edge = "largest" if rate > max(tried) else "smallest" if rate < min(tried) else ""
            pairs.append({**pair, "rates": [compared[0].value(RATE), rate], "edge": edge, "best": best})
    return pairs


def _losses_by_seed(group):
    return {run.value(SEED): run.record["final_val_loss"] for run in group.runs
            if run.record["status"] == "done" and run.record.get("final_val_loss") is not None}


def incomparable_keys(a, b):
    """The keys that make the final losses of two groups incomparable: those of the text and, unless both saw as many
    tokens, the number of steps. The final loss is of the whole validation text, whatever the size of a batch."""
    return [key for key, *_ in difference(a, b) if key.startswith("data.") or key == STEPS and not same_tokens(a, b)]


# ---- figures of seeds -------------------------------------------------------------------------------------------


def standard_deviation(values):
    """The sample standard deviation; None of fewer than two values."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def standard_error(values):
    """The standard error of the mean; None of fewer than two values."""
    return None if len(values) < 2 else standard_deviation(values) / math.sqrt(len(values))


def figure_text(values, kind):
    """ "2.550 ± 0.050", "2.5123", "-". `kind`: "loss", "ratio", "count" for whole numbers, or "speed", which has no
    error, as that would describe the machine's other load."""
    if not values:
        return "-"
    mean, error = statistics.fmean(values), standard_error(values)
    if kind == "speed":
        return f"{mean / 1e3:,.1f}k"
    if kind == "count" and (error is None or error == 0 or error >= 10):
        return f"{mean:,.0f}" + (f" ± {error:,.0f}" if error is not None else "")
    if error is not None and math.isfinite(error):
        return with_error(mean, error)
    return f"{mean:.4f}" if kind == "loss" and abs(mean) < LARGE_LOSS else f"{mean:.3g}"


def with_error(mean, error):
    """ "-0.061 ± 0.039": two significant digits of the error, and as many of the mean after the point."""
    digits = 1 - math.floor(math.log10(error)) if error > 0 else -1
    if not 0 <= digits <= 6:
        return f"{mean:.3g} ± {error:.2g}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def verdict_on(differences):
    """The verdict on differences seed by seed, by Student's t at 5%."""
    if not any(differences):
        return "the same losses"
    error = standard_error(differences)
    t = abs(statistics.fmean(differences)) / error if error > 0 else math.inf
    if not t >= NORMAL_QUANTILE:
        return "cannot be told apart"
    if len(differences) == 2:
        return TOO_FEW
    clear = two_sided_p(t, len(differences) - 1) <= 0.05
    return "a clear difference" if clear else "perhaps a difference; too few seeds to tell"


def two_sided_p(t, degrees):
    """The probability that Student's t with this many degrees of freedom lies further from 0 than `t`: 1 - P(-t < T <
    t) by the finite series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even), whose terms are all positive."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(3 if odd else 2, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    return 1 - (2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total)
