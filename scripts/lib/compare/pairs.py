"""Differences between groups of runs, seed by seed: the partner of each group, the differences, and verdicts on
them."""

import math
import statistics
from collections import namedtuple

from lib.compare.configs import SEED
from lib.compare.labels import joined, value_text
from lib.logs.runs import COUNTS

RATE, LOSS = "train.lr", "final_val_loss"
LARGE_LOSS = 100  # above it, digits after the point mean nothing
ROUNDING = 1e-9  # of a mean: smaller errors are rounding's
CLEAR = "a clear difference"
TOO_FEW = "too few seeds to tell from chance"
NORMAL_QUANTILE = 1.959964  # Student's t at 5%, infinite degrees of freedom


# A group and its partner, which is subtracted from it; `difference`: that of their configs.
Pairing = namedtuple("Pairing", "group partner difference")


def pairing_with(group, partner):
    """The Pairing of a group with a partner."""
    return Pairing(group, partner, group.config.minus(partner.config))


# ---- which group each group is subtracted from ------------------------------------------------------------------


def repeats_of(groups, base):
    """{group: the group whose config it repeats}: the base, or else the first group, stands for its config."""
    configs = {group: str(group.config.values) for group in groups}
    first = {configs[base]: base}
    for group in groups:
        first.setdefault(configs[group], group)
    return {group: first[configs[group]] for group in groups if first[configs[group]] is not group}


def pairings_of(groups, base, compared_key):
    """The Pairings, in the order of the groups. The first rule that fits decides:

    1. Repeat. The partner of a group with the base's config is the base; that of a group with an earlier group's config
       is the earlier group. The rules below pass over repeats.
    2. Same setting. The partner of a group with another value of the compared key than the base is the group with the
       base's value of that key and the same value of every other chosen key.
    3. Neighbour. The partner of another group is the first earlier group that differs from it in one choice.
    4. Base. The partner of the remaining groups is the base.

    The base and each group that rule 2 subtracts from another have no partner.

    An example with placement as the compared key, in which the first group is the base:

        A  pre   L 6
        B  post  L 6             B - A   same setting
        C  pre   L 12                    (a partner by rule 2)
        D  post  L 12            D - C   same setting
        E  post  L 6   rmsnorm   E - B   neighbour: there is no pre, L 6, rmsnorm; B has another norm and nothing else
        F  pre   L 6             F - A   repeat
        G  post  L 24  lr 0.1    G - A   base: every earlier group differs in two choices or more
    """
    repeats = repeats_of(groups, base)
    groups_once = [group for group in groups if group not in repeats]
    at_base = [group for group in groups_once if group.value(compared_key) == base.value(compared_key)]

    def first_of(candidates, group, is_wanted):
        """The first candidate from which the group differs in choices that are wanted; else None."""
        return next((one for one in candidates if is_wanted(group.config.minus(one.config).choices)), None)

    partners = {group: first_of(at_base, group, lambda choices: choices == [compared_key])
                for group in groups_once if group not in at_base}
    partners = {group: partner for group, partner in partners.items() if partner}
    paired = {base, *partners, *partners.values()}
    for index, group in enumerate(groups_once):
        if group not in paired:
            partners[group] = first_of(groups_once[:index], group, lambda choices: len(choices) == 1) or base
    partners |= repeats
    return [pairing_with(group, partners[group]) for group in groups if group in partners]


# ---- differences ------------------------------------------------------------------------------------------------


def pair_of(pairing, compared_key, metric=LOSS):
    """A metric of a group minus its partner's, seed by seed, in which the effect of a seed (initial weights, batches)
    cancels; None if losses cannot be compared or fewer than two seeds are shared. Only seeds count whose runs are done
    in both. A dict:

    group, partner        labels
    mean, standard_error  of the differences, one for each of `n` seeds
    difference, verdict   "-0.061 ± 0.039", and what verdict_on says of the differences
    text                  in how many seeds the group is lower, and the verdict
    partner_text          the partner's mean ± standard error, as the table of runs has it
    repeat                whether the configs are the same
    setting               the partner's label without the compared key; None if another key differs too
    values                the texts of the compared key's values in group and partner"""
    group, partner, difference = pairing
    pair = seed_by_seed(values_by_seed(group, metric), values_by_seed(partner, metric))
    if pair is None or difference.incomparable and metric.endswith("_loss"):
        return None
    is_repeat = not difference.changes
    survivors = " that did not diverge" if partner.diverged or group.diverged else ""
    count = f"lower in {pair.pop('lower')} of {pair['n']} shared seeds{survivors}"
    return {"group": group.label, "partner": partner.label, **pair, "repeat": is_repeat,
            "text": f"{'a repeat; ' if is_repeat else ''}{count}: {pair['verdict']}",
            "partner_text": metric_text(partner.metric_values(metric), metric),
            "setting": setting_text(partner, compared_key) if difference.choices == [compared_key] else None,
            "values": [value_text(compared_key, member.value(compared_key)) for member in (group, partner)]}


def seed_by_seed(losses, partner_losses):
    """Of two {seed: loss}: the members mean, standard_error, n, difference and verdict of pair_of, and `lower`, in how
    many seeds the difference is below 0. None if fewer than two seeds are shared."""
    differences = [loss - partner_losses[seed] for seed, loss in sorted(losses.items()) if seed in partner_losses]
    if len(differences) < 2:
        return None
    mean, error = statistics.fmean(differences), standard_error(differences)
    return {"mean": mean, "standard_error": error, "n": len(differences), "verdict": verdict_on(differences),
            "difference": ("+" if mean > 0 else "") + with_error(mean, error), "lower": sum(d < 0 for d in differences)}


def setting_text(group, compared_key):
    """The group's label without the compared key and without the name of runs whose label has their keys too."""
    return joined(group, {*group.labelled} - {compared_key}) if group.labelled else group.label


def best_rates(groups):
    """For each set of groups that differ only in the learning rate: the second best minus the best, as pair_of has it.
    Only groups with two or more seeds, all done, are compared. `groups`: those without repeats. Further members:
    "rates", those of the second best and of the best; "best", the best Group; "edge", "largest" or "smallest" if no
    rate above or below the best was tried, else ""."""
    def loss(group):
        return statistics.fmean(values_by_seed(group).values())

    pairs, finished = [], [group for group in groups if len(values_by_seed(group)) == len(group.runs) > 1]
    for best in finished:
        others = [pairing for pairing in (pairing_with(group, best) for group in groups)
                  if pairing.difference.choices == [RATE]]
        rival = min((pairing for pairing in others if pairing.group in finished),
                    key=lambda pairing: loss(pairing.group), default=None)
        if rival and loss(best) < loss(rival.group) and (pair := pair_of(rival, RATE)):
            rate, tried = best.value(RATE), [pairing.group.value(RATE) for pairing in others]
            edges = {max(rate, *tried): "largest", min(rate, *tried): "smallest"}
            pairs.append({**pair, "rates": [rival.group.value(RATE), rate], "edge": edges.get(rate, ""), "best": best})
    return pairs


def between_bests(bests):
    """Pairs, as pair_of has them, of groups at their best learning rates, which differ: each minus the first group from
    which it differs in one further choice."""
    pairings = [pairing_with(group, partner) for index, group in enumerate(bests) for partner in bests[:index]]
    first = {pairing.group: pairing for pairing in reversed(pairings)
             if RATE in pairing.difference.choices and len(pairing.difference.choices) == 2}
    return [*filter(None, (pair_of(first[group], RATE) for group in bests if group in first))]


def values_by_seed(group, metric=LOSS):
    """{seed: the metric} of the runs that are done and have it."""
    return {run.value(SEED): run.record[metric] for run in group.runs
            if run.record["status"] == "done" and run.record.get(metric) is not None}


# ---- means over seeds -------------------------------------------------------------------------------------------


def standard_deviation(values):
    """The sample standard deviation; None if there are fewer than two values."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def standard_error(values):
    """The standard error of the mean of values, one a seed: their standard deviation over √n; None if there are fewer
    than two values."""
    return None if len(values) < 2 else standard_deviation(values) / math.sqrt(len(values))


def metric_text(values, metric):
    """The mean of the values of a metric with its standard error: "2.550 ± 0.050", "2.5123", "-" without values."""
    if not values:
        return "-"
    mean, error = statistics.fmean(values), standard_error(values)
    is_count = metric in (*COUNTS, "steps_to_target", "tokens_to_target")
    if is_count and (error is None or error == 0 or error >= 10):
        return f"{mean:,.0f}" + (f" ± {error:,.0f}" if error is not None else "")
    if error is not None and math.isfinite(error):
        return with_error(mean, error)
    return f"{mean:.4f}" if metric.endswith("_loss") and abs(mean) < LARGE_LOSS else f"{mean:.3g}"


def with_error(mean, error):
    """ "-0.061 ± 0.039": two significant digits of the error, and as many of the mean after the point; of a tiny error
    "3.0912 ± 0"."""
    error = 0 if error < ROUNDING * abs(mean) else error
    digits = 1 - math.floor(math.log10(error)) if error > 0 else math.inf
    if 0 <= digits <= 6:
        return f"{mean:.{digits}f} ± {error:.{digits}f}"
    is_plain = digits > 6 and 0.01 <= abs(mean) < LARGE_LOSS
    return f"{mean:.4f} ± {error:.2g}" if is_plain else f"{mean:.3g} ± {error:.2g}"


def verdict_on(differences):
    """The verdict on differences seed by seed, by Student's t at 5%."""
    if not any(differences):
        return "the same losses"
    error = standard_error(differences)
    t = abs(statistics.fmean(differences)) / error if error > 0 else math.inf
    if not t >= NORMAL_QUANTILE:
        return "cannot be told apart"
    is_clear = len(differences) > 2 and two_sided_p(t, len(differences) - 1) <= 0.05
    return CLEAR if is_clear else TOO_FEW


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
