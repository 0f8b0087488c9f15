#!/usr/bin/python3
"""The names that a sweep's file gives to values of its grid and to cases are the labels of its runs."""

import csv
import io
import json
import unittest

from cli import merged
from test_compare import CompareTest

from lib.figures import layout  # in scripts, which cli.py puts on the path

VALUES = {"small": {"train": {"batch_size": 2, "steps": 8}}, "large": {"train": {"batch_size": 8, "steps": 2}}}
BATCH = {"batch": ["train.batch_size", "train.steps"]}
POST = {"model": {"norm_placement": "post"}}


class NamedValues(CompareTest):
    def make_named(self, keys, runs):
        """Two seeds of each run, {its name: (its labels, changes of the config)}, and the labels with the `keys` that
        they stand for."""
        for name, (_, changes) in runs.items():
            self.make_seeds(name, [2.5, 2.6], changes)
        labels = {f"{name}-{seed}": labels for name, (labels, _) in runs.items() for seed in (1, 2)}
        self.write("runs/labels.json", json.dumps({"keys": keys, "runs": labels}))

    def test_a_name_stands_in_place_of_the_keys_that_it_sets(self):
        self.make_named(BATCH, {name: ({"batch": name}, changes) for name, changes in VALUES.items()})
        result = self.comparison()
        self.assertEqual([(entry["label"], entry["choices"]) for entry in result["runs"]],
                         [("large", []), ("small", ["batch"])])
        self.assertEqual(self.remarks("differs"),
                         ["small against large: batch (train.steps 2 -> 8, train.batch_size 8 -> 2)"])
        self.assertEqual(self.remarks("not_comparable"), [])
        rows = list(csv.DictReader(io.StringIO(self.compare("runs", "--csv"))))
        self.assertEqual([(row["batch"], row["train.batch_size"], row["train.steps"]) for row in rows],
                         [("large", "8", "2"), ("small", "2", "8")])
        self.write("runs/labels.json", "{}")
        self.assertIn("labels.json: is damaged", self.compare("runs", code=1))

    def test_named_values_are_one_key_of_a_grid(self):
        self.make_named(BATCH, {f"{name}{layers}": ({"batch": name}, merged(changes, {"model": {"n_layer": layers}}))
                                for name, changes in VALUES.items() for layers in (1, 2)})
        self.assertEqual(self.labels(), ["large · L 1", "large · L 2", "small · L 1", "small · L 2"])
        result, columns = self.comparison(), ("group", "partner", "setting", "values")
        self.assertEqual(result["key"], "batch")
        self.assertEqual([[pair[column] for column in columns] for pair in result["paired"]],
                         [["small · L 1", "large · L 1", "L 1", ["small", "large"]],
                          ["small · L 2", "large · L 2", "L 2", ["small", "large"]]])

    def test_losses_after_other_tokens_are_not_comparable_under_names_either(self):
        values = {**VALUES, "small": merged(VALUES["large"], {"train": {"steps": 3}})}
        self.make_named(BATCH, {name: ({"batch": name}, changes) for name, changes in values.items()})
        self.assertIn("other train.steps (at unequal tokens)", self.remarks("not_comparable")[0])

    def test_a_case_is_called_by_its_name_and_compared_by_its_keys(self):
        warm = {"train": {"warmup_steps": 1}}
        self.make_named({"case": ["model.norm_placement", "train.warmup_steps"]},
                        {"warm, up": ({"case": "warm, up"}, merged(POST, warm)), "a": ({}, {}), "b": ({}, POST)})
        self.assertEqual(self.labels(), ["pre", "post", "warm, up"])
        self.assertIn("warm, up against post: train.warmup_steps 0 -> 1", self.remarks("differs"))
        self.assertIn("\nwarm, up\n", self.compare("runs"))
        styled = layout.styled([entry["group"] for entry in self.comparison()["runs"]])
        self.assertEqual(len({(group.color, group.dash) for group in styled}), 3)
        self.clear()
        self.make_named({"case": ["train.warmup_steps"]},
                        {"cold": ({"case": "cold"}, {}), "warm": ({"case": "warm"}, warm)})
        self.assertEqual(self.labels(), ["cold", "warm"])
        self.assertEqual(self.labels("runs/warm-1", "runs/warm-2"), ["pre · layernorm"])


if __name__ == "__main__":
    unittest.main()
