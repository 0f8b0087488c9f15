#!/usr/bin/python3
"""Which groups compare.py subtracts from which, and its figures, over random folders of runs: repeats, copies, other
texts, other steps and batches, missing seeds, diverged runs; against a plain model of the rule and numpy."""

import copy
import itertools
import json
import math
import random
import subprocess
import unittest
import unittest.mock

import numpy as np

from cli import BINARY, LONG, CliTest, merged, write_run
from test_compare import SUMMARY

import compare  # in scripts, which cli.py puts on the path
from lib.compare import comparison, labels
from lib.logs import runs

FOLDERS = 300 if LONG else 30
KEYS = {  # {key: values}, in the order in which labels have them
    "model.norm_placement": ("pre", "post", "peri"), "model.norm": ("layernorm", "rmsnorm"),
    "data.path": ("text.txt", "other.txt"), "model.n_layer": (2, 3), "train.steps": (100, 200),
        "train.batch_size": (4, 8),
    "train.lr": (0.001, 0.0010000001, 0.01), "train.warmup_steps": (0, 1), "train.weight_decay": (0.1, 0.2)}
TOKENS = ("train.steps", "train.batch_size")


class Model:
    """The rule in plain words. `settings`: {key: value} of each run; `seeds`, `losses` (None: diverged) and `names` of
    their folders."""

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
        differing = set()
        for (one, *_), (other, *_) in zip(self.groups, self.groups[1:]):
            differing |= self.choices(one, other)
        self.key = next((key for key in KEYS if key in differing), "model.norm_placement")

    def choices(self, one, other):
        """The keys in which two settings differ; other steps are no choice where both see as many tokens."""
        keys = {key for key in KEYS if one[key] != other[key]}
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
                at_base = [settings[k][self.key] == settings[self.base][self.key] for k in (i, j)]
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


def compared(made, base=None):
    """The comparison of runs as if a sweep had made them."""
    with unittest.mock.patch.object(labels, "is_of_sweep", lambda run: True):
        return comparison.comparison(made, base)


def assert_labels(test, result):
    """Labels have all keys in which two groups differ by choice, or none."""
    for entry, other in itertools.combinations(result["runs"], 2):
        one, two = entry["group"], other["group"]
        test.assertNotEqual(one.label, two.label)
        if one.labelled or two.labelled:
            test.assertLessEqual({*one.config.minus(two.config).choices}, {*one.labelled, *two.labelled})


class Pairs(CliTest):
    def setUp(self):
        super().setUp()
        self.write("other.txt", "another text " * 100)
        self.resolved = {}

    def config_of(self, setting, seed):
        """The resolved config: the program's of the keys in words, to which those in numbers are added."""
        chosen = tuple(setting[key] for key in ("model.norm_placement", "model.norm"))
        if chosen not in self.resolved:
            name = self.config({"model": dict(zip(("norm_placement", "norm"), chosen)), "train": {"warmup_steps": 1}})
            self.resolved[chosen] = json.loads(self.normscope("config", name).stdout)
        config = copy.deepcopy(self.resolved[chosen])
        for key, value in setting.items():
            section, _, name = key.partition(".")
            config[section][name] = value
        return merged(config, {"train": {"seed": seed, "min_lr": float(f"{setting['train.lr'] / 10:.15g}")}})

    def random_folder(self, draw, folder):
        """Makes run folders; their Model."""
        varied = sorted(draw.sample(list(KEYS), draw.randint(0, 6)), key=list(KEYS).index)
        first = {key: values[0] for key, values in KEYS.items()}
        configs = [first]
        for _ in range(draw.randint(1, 7)):
            configs.append({**first, **{key: draw.choice(KEYS[key]) for key in varied}})
        if len(varied) > 1 and draw.random() < 0.5:  # a grid of two keys
            ends = varied[0], varied[-1]
            grid = itertools.product(*(KEYS[key][:2] for key in ends))
            configs += [{**first, **dict(zip(ends, values))} for values in grid]
        if "train.steps" in varied and draw.random() < 0.5:
            configs.append({**first, "train.steps": 50, "train.batch_size": 8})  # as many tokens as the first
        written, settings, seeds, losses, names = [], [], [], [], []
        for config in configs:
            for seed in draw.sample(range(1, 5), draw.choice((1, 2, 3, 4, 4))):
                written.append((config, seed, None if draw.random() < 0.1 else round(draw.uniform(1, 3), 3)))
        written += draw.sample(written, draw.randint(0, min(4, len(written))))  # copies
        if draw.random() < 0.3:
            copied = draw.choice(configs)
            written += [run for run in written if run[0] == copied]
        if draw.random() < 0.5:
            draw.shuffle(written)
        for number, (config, seed, loss) in enumerate(written):
            name = f"{folder}/{number:03}"
            losses_if_done = {} if loss is None else {"final_val_loss": loss, "best_val_loss": loss}
            write_run(self.path(name), self.config_of(config, seed),
                      {**SUMMARY, **losses_if_done, "status": "diverged" if loss is None else "done",
                       "corpus_hash": config["data.path"][:2] * 8})
        numbers = range(len(written))
        # find_runs's order
        for number in sorted(numbers, key=lambda at: written[at][0]["model.norm_placement"] != "pre"):
            config, seed, loss = written[number]
            names.append(f"{number:03}")
            settings.append(config)
            seeds.append(seed)
            losses.append(loss)
        base_name = draw.choice(names) if draw.random() < 0.4 else None
        return Model(settings, seeds, losses, names, base_name), base_name

    def test_pairs_and_figures_of_random_folders(self):
        pairs, repeats, rules = 0, 0, set()
        for number in range(FOLDERS):
            folder = f"runs{number}"
            with self.subTest(folder):
                model, base_name = self.random_folder(random.Random(number), folder)
                result = compared(runs.find_runs([self.path(folder)], "config.json"), base_name)
                self.assert_groups(model, result)
                assert_labels(self, result)
                self.assert_pairs(model, result)
                self.assert_tables(model, result)
                pairs += len(result["paired"])
                repeats += sum(pair["repeat"] for pair in result["paired"])
                rules |= {(pair["repeat"], pair["setting"] is None) for pair in result["paired"]}
        self.assertGreater(pairs, FOLDERS)
        self.assertGreater(repeats, FOLDERS / 10)
        self.assertEqual(rules, {(True, True), (False, True), (False, False)})

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

    def assert_tables(self, model, result):
        """A grid's table names every setting and subtracts no value from itself; the CSV has a row a group."""
        for part in compare.parts_of_pairs(result):
            for title in part.rows[0][2:] if not part.is_list else ():
                self.assertNotEqual(*title.split(" minus "))
        settings = list({pair["partner"]: pair["setting"] for pair in result["paired"]
                         if pair["setting"] is not None}.values())
        if len(settings) > 1:
            self.assertEqual((len(set(settings)), "" in settings), (len(settings), False))
        self.assertEqual(len([*compare.rows_of_csv(result["runs"])]), 1 + len(model.groups))


class MadeRun(runs.Run):
    """A run without files."""

    def __init__(self, folder, config, summary):
        self.made = config
        super().__init__(folder)
        self.summary = summary

    def _json(self, name):
        return self.made


class KeysOfOneValue(CliTest):
    """Folders with keys that have an effect under one value of the compared key only, as mix_post_fraction has under
    mix: each difference is printed once, where its column, row or line names all that tells it apart."""

    VALUES = {  # {key: values}; {(another key, its value): the same of keys that only this value has}
        "model.norm_placement": ("pre", "mix", "post"), "model.norm": ("layernorm", "groupnorm", "dyt"),
        "train.optimizer": ("adamw", "sgd"), "model.n_layer": (2, 4), "train.lr": (0.001, 0.01),
        "train.schedule": ("constant", "wsd")}
    OF_ONE_VALUE = {"mix": ("model.mix_post_fraction", (0.25, 0.5, 0.75)), "groupnorm": ("model.norm_groups", (2, 4)),
                    "dyt": ("model.norm_alpha", (0.5, 1.0)), "sgd": ("train.momentum", (0.0, 0.9)),
                    "wsd": ("train.cooldown", (0.1, 0.3))}

    def random_settings(self, draw):
        """A list of {key: value}, in which two or three of the keys vary."""
        varied = draw.sample(list(self.VALUES), draw.choice((2, 2, 3)))
        settings = []
        for values in itertools.product(*(self.VALUES[key] for key in varied)):
            setting = dict(zip(varied, values))
            own = [self.OF_ONE_VALUE[value] for value in values if value in self.OF_ONE_VALUE]
            for choice in itertools.product(*(values for _, values in own)):
                settings.append(setting | dict(zip((key for key, _ in own), choice)))
        return draw.sample(settings, min(len(settings), draw.randint(4, 9)))

    def test_each_pair_is_printed_once(self):
        folders = [self.random_settings(random.Random(number)) for number in range(10 * FOLDERS)]
        lines = [json.dumps([f"{key}={json.dumps(value)}" for key, value in setting.items()])
                 for setting in itertools.chain(*folders)]
        batch = subprocess.run([BINARY, "config", "--batch", self.config()], cwd=self.folder, input="\n".join(lines),
                               capture_output=True, encoding="utf-8", check=True)
        configs, cells = map(json.loads, batch.stdout.splitlines()), 0
        for number, folder in enumerate(folders):
            draw, made = random.Random(number), []
            spread = draw.choice((0.01, 1))
            for setting in folder:
                config, level = next(configs)["config"], draw.uniform(2, 3)
                for seed in (1, 2, 3):
                    summary = {"final_val_loss": level + draw.uniform(-spread, spread), "grad_first_last": 0.1,
                               "branch_share": draw.choice((0.01, 0.5)), "status": "done"}
                    if draw.random() < 0.1:
                        summary |= {"status": draw.choice(("done", "diverged", "interrupted")), "grad_first_last": 1e-4}
                    seeded = {**config, "train": {**config["train"], "seed": seed}}
                    made.append(MadeRun(f"{number}/{len(made):03}", seeded,
                                        {**SUMMARY, **summary, "steps": draw.randint(1, 9)}))
            with self.subTest(number):
                result = compared(made)
                cells += self.assert_printed_once(result)
                self.assert_remarks(result)
        self.assertGreater(cells, 15 * FOLDERS)

    def assert_remarks(self, result):
        """None is said of a group twice, and none says what a difference beside it refutes."""
        said = [(remark["kind"], label) for remark in result["remarks"] for label in remark["groups"]]
        self.assertEqual(len(set(said)), len(said))
        placements = {entry["label"]: entry["placement"] for entry in result["runs"]}
        pairs = [(pair["group"], pair["partner"]) for pair in result["paired"]
                 if pair["verdict"] == "a clear difference"]
        clear = set().union(*(pair for pair in pairs if placements[pair[0]] != placements[pair[1]]))
        for remark in result["remarks"]:
            if remark["kind"] == "small_branch":
                is_later = remark["text"].endswith("; the clear difference comes later")
                self.assertTrue(clear >= {*remark["groups"]} if is_later else clear.isdisjoint(remark["groups"]))

    def assert_printed_once(self, result):
        """Returns the number of differences in tables."""
        pairs, parts = result["paired"], [*compare.parts_of_pairs(result)]
        groups = {entry["label"]: entry["group"] for entry in result["runs"]}
        named = []  # (partner, group, difference) of each printed one
        for part in parts:
            (_, partner_value, *titles), *rows = part.rows
            if part.is_list:
                continue
            self.assertEqual((len({row[0] for row in rows}), len({*titles})), (len(rows), len(titles)))
            for (setting, _, *cells), title in itertools.product(rows, titles):
                cell, (value, _, subtracted) = cells[titles.index(title)], title.rpartition(" minus ")
                self.assertEqual(subtracted, partner_value)
                named += [(pair["partner"], pair["group"], cell.rstrip("*")) for pair in pairs
                          if cell != "-" and pair["setting"] == setting and pair["values"][1] == partner_value
                          and {*value.split(" · ")} <= {*groups[pair["group"]].parts.values()}]
        in_tables = len(named)
        for part in parts:
            partner = part.heading.removeprefix("final val minus that of ").partition(", seed by seed")[0]
            named += [(partner, label, cell) for label, cell, _ in part.rows[1:] * part.is_list]
        self.assertCountEqual(named, [(pair["partner"], pair["group"], pair["difference"]) for pair in pairs])
        return in_tables


if __name__ == "__main__":
    unittest.main()
