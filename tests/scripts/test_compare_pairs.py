#!/usr/bin/python3
"""Which groups compare.py subtracts from which, and its figures, over random runs: repeats, copies, other texts, other
steps and batches, missing seeds, diverged runs, keys that have an effect under one value of another only; against a
plain model of the rule and numpy."""

import collections
import itertools
import json
import math
import random
import unittest
import unittest.mock

import numpy as np

from cli import LONG, CliTest, merged
from made_runs import resolved
from test_compare import SUMMARY

from lib.base.keys import fields
from lib.compare import comparison, labels, tables
from lib.logs.runs import Run

FOLDERS = 1000 if LONG else 100
KEYS = {  # {key: values}
    "model.norm_placement": ("pre", "post", "mix"), "model.norm": ("layernorm", "rmsnorm", "groupnorm"),
    "data.path": ("text.txt", "other.txt"), "model.n_layer": (2, 3), "train.steps": (100, 200),
    "train.batch_size": (4, 8), "train.grad_accum": (1, 2), "train.optimizer": ("adamw", "sgd"),
    "train.lr": (0.001, 0.0010000001, 0.01), "train.warmup_steps": (0, 1), "train.weight_decay": (0.1, 0.2)}
OF_ONE_VALUE = {  # {value: (key that has an effect under this value alone, its values, the default first)}
    "mix": ("model.mix_post_fraction", (0.25, 0.5, 0.75)), "groupnorm": ("model.norm_groups", (4, 2)),
    "sgd": ("train.momentum", (0.0, 0.9))}
DEFAULTS = {key: values[0] for key, values in OF_ONE_VALUE.values()}
LABELS = sorted({**KEYS, **DEFAULTS}, key=lambda key: (fields()[key].get("x-label") != "{}", [*fields()].index(key)))
TOKENS = ("train.steps", "train.batch_size", "train.grad_accum")


class Model:
    """The rule in plain words. `settings`: {key: value} of the keys with an effect in each run; `seeds`, `losses`
    (None: diverged) and `names` of their folders."""

    def __init__(self, settings, seeds, losses, names, base_name):
        self.groups = []  # (settings, {seed: loss}, the folders' names), in the order of their first runs
        for setting, seed, loss, name in zip(settings, seeds, losses, names):
            for group in self.groups:
                if group[0] == setting and seed not in group[1]:
                    break
            else:
                group = (setting, {}, [])
                self.groups.append(group)
            group[1][seed] = loss
            group[2].append(name)
        self.base = next((i for i, group in enumerate(self.groups) if base_name in group[2]), 0)
        self.key = next((key for key in LABELS if key in self.groups[self.base][0] and self.differ_in(key)),
                        "model.norm_placement")

    def differ_in(self, key):
        """Whether any two groups differ in a key by choice."""
        return any(key in self.choices(one, other) for (one, *_), (other, *_) in itertools.combinations(self.groups, 2))

    def choices(self, one, other):
        """The keys of both settings in which they differ; other steps are no choice where both see as many tokens."""
        keys = {key for key in one.keys() & other.keys() if one[key] != other[key]}
        return keys - {"train.steps"} if math.prod(map(one.get, TOKENS)) == math.prod(map(other.get, TOKENS)) else keys

    def partners(self):
        """{number of a group: number of the group that it is subtracted from}"""
        settings = [group[0] for group in self.groups]
        partners, rest = {}, []
        for i, one in enumerate(settings):
            same = [self.base] * (settings[self.base] == one) + [j for j, other in enumerate(settings) if other == one]
            if same[0] == i:
                rest.append(i)
            else:
                partners[i] = same[0]
        needed = {self.base}  # groups without a partner
        for i in rest:
            for j in reversed(rest):
                at_base = [value_of(settings[k], self.key) == value_of(settings[self.base], self.key) for k in (i, j)]
                if at_base == [False, True] and self.choices(settings[i], settings[j]) == {self.key}:
                    partners[i] = j
            needed |= {partners[i]} if i in partners else set()
        for i in rest:
            if i not in partners and i not in needed:
                near = [j for j in rest if j < i and len(self.choices(settings[i], settings[j])) == 1]
                partners[i] = near[0] if near else self.base
        return partners

    def comparable(self, i, j):
        one, other = self.groups[i][0], self.groups[j][0]
        same_tokens = math.prod(map(one.get, TOKENS)) == math.prod(map(other.get, TOKENS))
        return one["data.path"] == other["data.path"] and (one["train.steps"] == other["train.steps"] or same_tokens)

    def differences(self, i, j):
        """The losses of group i minus those of group j, of the seeds that both have whole."""
        one, other = self.groups[i][1], self.groups[j][1]
        return [one[seed] - other[seed] for seed in sorted(one) if None not in (one[seed], other.get(seed))]

    def pairs(self):
        """{(folders of a group, folders of its partner): differences}, of two shared seeds at least and comparable
        losses."""
        return {(tuple(self.groups[i][2]), tuple(self.groups[j][2])): self.differences(i, j)
                for i, j in self.partners().items() if self.comparable(i, j) and len(self.differences(i, j)) > 1}


def standard_error(values):
    return np.std(values, ddof=1) / math.sqrt(len(values))


def value_of(setting, key):
    """The value of a key, whether it has an effect or not."""
    return setting.get(key, DEFAULTS.get(key))


def random_settings(draw):
    """A list of {key: value}: some drawn, and maybe a grid of two keys."""
    varied = draw.sample(list(KEYS), draw.randint(0, 6))
    first = {key: values[0] for key, values in KEYS.items()}
    settings = [{**first, **{key: draw.choice(KEYS[key]) for key in varied}} for _ in range(draw.randint(1, 7))]
    settings.insert(0, first)
    if len(varied) > 1 and draw.random() < 0.6:
        grid = itertools.product(*(KEYS[key] for key in varied[:2]))
        settings = settings[:draw.choice((1, 9))] + [{**first, **dict(zip(varied, values))} for values in grid]
    if "train.steps" in varied and draw.random() < 0.5:
        settings.append({**first, "train.steps": 50, "train.batch_size": 8})  # as many tokens as the first
    return [setting | dict(own) for setting in settings for own in itertools.product(*(
        [(key, value) for value in values[:draw.randint(1, 3)]]
        for name, (key, values) in OF_ONE_VALUE.items() if name in setting.values()))]


def random_runs(draw, settings):
    """[(setting, seed, loss)], with copies."""
    spread, made = draw.choice((0.01, 1)), []
    for setting in settings:
        level = draw.uniform(2, 3)
        for seed in draw.sample(range(1, 5), draw.choice((1, 2, 3, 4, 4))):
            loss = None if draw.random() < 0.1 else round(level + draw.uniform(-spread, spread), 5)
            made.append((setting, seed, loss))
    made += draw.sample(made, draw.randint(0, min(4, len(made))))
    if draw.random() < 0.3:
        copied = draw.choice(settings)
        made += [run for run in made if run[0] == copied]
    if draw.random() < 0.5:
        draw.shuffle(made)
    return made


class Pairs(CliTest):
    def test_pairs_and_figures_of_random_folders(self):
        draws = [random.Random(number) for number in range(FOLDERS)]
        folders, counts = [random_settings(draw) for draw in draws], collections.Counter()
        self.write("other.txt", "another text " * 100)
        configs = iter(resolved(self.path(self.config()), *itertools.chain(*folders)))
        for number, (draw, settings) in enumerate(zip(draws, folders)):
            config_of = {json.dumps(setting): next(configs) for setting in settings}
            written = random_runs(draw, settings)
            names = [f"{i:03}" for i in range(len(written))]
            made = [Run(f"{number}/{name}", merged(config_of[json.dumps(setting)], {"train": {"seed": seed}}), {
                **SUMMARY, **({} if loss is None else {"final_val_loss": loss, "best_val_loss": loss}),
                "status": "diverged" if loss is None else "done", "corpus_hash": setting["data.path"][:2] * 8,
                "branch_share": draw.choice((0.01, 0.5))}) for name, (setting, seed, loss) in zip(names, written)]
            base_name = draw.choice(names) if draw.random() < 0.4 else None
            with self.subTest(number):
                model = Model(*zip(*written), names, base_name)
                with unittest.mock.patch.object(labels, "is_of_sweep", lambda run: True):
                    result = comparison.comparison(made, base_name)
                self.assert_groups(model, result)
                self.assert_labels(result)
                self.assert_pairs(model, result)
                self.assert_remarks(result)
                counts["in tables"] += self.assert_printed_once(result)
                counts["repeats"] += sum(pair["repeat"] for pair in result["paired"])
                counts.update((pair["repeat"], pair["setting"] is None) for pair in result["paired"])
        self.assertGreater(counts.pop("in tables"), FOLDERS / 2)
        self.assertGreater(counts.pop("repeats"), FOLDERS / 10)
        self.assertEqual({*counts}, {(True, True), (False, True), (False, False)})

    def assert_labels(self, result):
        """Labels have all keys in which two groups differ by choice, or none."""
        for entry, other in itertools.combinations(result["runs"], 2):
            one, two = entry["group"], other["group"]
            self.assertNotEqual(one.label, two.label)
            if one.labelled or two.labelled:
                self.assertLessEqual({*one.config.minus(two.config).choices}, {*one.labelled, *two.labelled})

    def folders_by_label(self, result):
        """{a group's label: the names of its folders}"""
        return {entry["label"]: tuple(folder.rsplit("/", 1)[-1] for folder in entry["folders"])
                for entry in result["runs"]}

    def assert_groups(self, model, result):
        """The same groups, under labels of their own, with numpy's figures of the runs that did not diverge."""
        self.assertEqual(result["key"], model.key)
        self.assertEqual(list(self.folders_by_label(result).values()), [tuple(names) for _, _, names in model.groups])
        for entry, (_, losses, _) in zip(result["runs"], model.groups):
            values = [loss for loss in losses.values() if loss is not None]
            figure = entry["metrics"]["final_val_loss"]
            self.assertEqual((figure["n"], figure["mean"] is None, figure["sd"] is None),
                             (len(values), not values, len(values) < 2))
            if values:
                self.assertAlmostEqual(figure["mean"], np.mean(values), delta=1e-12)
            if len(values) > 1:
                self.assertAlmostEqual(figure["sd"], np.std(values, ddof=1), delta=1e-12)
                self.assertAlmostEqual(figure["standard_error"], standard_error(values), delta=1e-12)

    def assert_pairs(self, model, result):
        """Each group is subtracted from the one that the model names, with numpy's mean and standard error; a repeat
        is called that."""
        folders = self.folders_by_label(result)
        pairs = {(folders[pair["group"]], folders[pair["partner"]]): pair for pair in result["paired"]}
        expected = model.pairs()
        self.assertEqual(pairs.keys(), expected.keys())
        settings = {tuple(names): setting for setting, _, names in model.groups}
        for key, differences in expected.items():
            pair, is_repeat = pairs[key], settings[key[0]] == settings[key[1]]
            self.assertAlmostEqual(pair["mean"], np.mean(differences), delta=1e-12)
            self.assertAlmostEqual(pair["standard_error"], standard_error(differences), delta=1e-12)
            self.assertEqual((pair["n"], pair["repeat"], pair["text"].startswith("a repeat; ")),
                             (len(differences), is_repeat, is_repeat))
            in_grid = model.choices(settings[key[0]], settings[key[1]]) == {model.key}
            self.assertEqual(pair["setting"] is not None, in_grid)
            if in_grid:
                self.assertNotEqual(*pair["values"])
        repeated = {label for remark in result["remarks"] if remark["kind"] == "repeat" for label in remark["groups"]}
        self.assertFalse(repeated & {pair[name] for pair in result["rates"] for name in ("partner", "group")})
        self.assertEqual({folders[label] for label in repeated}, {
            tuple(model.groups[i][2]) for i, j in model.partners().items() if model.groups[i][0] == model.groups[j][0]})

    def assert_remarks(self, result):
        """None is said of a group twice."""
        said = [(remark["kind"], label) for remark in result["remarks"] for label in remark["groups"]]
        self.assertEqual(len(set(said)), len(said))

    def assert_printed_once(self, result):
        """Returns the number of differences in tables."""
        pairs, parts = result["paired"], [*tables.parts_of_pairs(result)]
        groups = {entry["label"]: entry["group"] for entry in result["runs"]}
        named = []  # (partner, group, difference) of each printed one
        for part in parts:
            (_, partner_value, *titles), *rows = part.rows
            if part.is_list:
                continue
            self.assertEqual((len({row[0] for row in rows} - {""}), len({*titles})), (len(rows), len(titles)))
            for (setting, subtracted_mean, *cells), title in itertools.product(rows, titles):
                cell, (value, _, subtracted) = cells[titles.index(title)], title.rpartition(" minus ")
                self.assertEqual(subtracted, partner_value)
                named += [(pair["partner"], pair["group"], cell.rstrip("*")) for pair in pairs
                          if cell != "-" and pair["setting"] == setting and pair["values"][1] == partner_value
                          and pair["partner_text"] == subtracted_mean
                          and cell.endswith("*") == (pair["verdict"] == "a clear difference")
                          and {*value.split(" · ")} <= {*groups[pair["group"]].parts.values()}]
        in_tables = len(named)
        for part in parts:
            partner = part.heading.removeprefix("final val minus that of ").partition(", seed by seed")[0]
            named += [(partner, label, cell) for label, cell, _ in part.rows[1:] * part.is_list]
        self.assertCountEqual(named, [(pair["partner"], pair["group"], pair["difference"]) for pair in pairs])
        return in_tables


if __name__ == "__main__":
    unittest.main()
