#!/usr/bin/python3
"""The names that a sweep's file gives to values of its grid and to cases are the labels of its runs."""

import csv
import io
import json
import unittest

from cli import merged
from test_compare import CompareTest

from lib.figures import layout  # in scripts, which cli.py puts on the path

BATCH = {"small": {"train": {"batch_size": 2, "steps": 8}}, "large": {"train": {"batch_size": 8, "steps": 2}}}
NAMED_KEYS = {"batch": ["train.batch_size", "train.steps"]}


class Tables(CompareTest):
    def make_named(self, values, entry="batch", keys=None, others=None):
        """Runs of two seeds for each named value: {name: (changes of the config, losses)}."""
        runs = {}
        for name, (changes, losses) in values.items():
            self.make_seeds(name, losses, changes)
            runs |= {f"{name}-{seed}": {entry: name} for seed in (1, 2)}
        for name, (changes, losses) in (others or {}).items():
            self.make_seeds(name, losses, changes)
        self.write("runs/labels.json", json.dumps({"keys": keys or NAMED_KEYS, "runs": runs}))

    def test_a_name_stands_in_place_of_the_keys_that_it_sets(self):
        self.make_named({name: (changes, [2.5, 2.6]) for name, changes in BATCH.items()})
        result = self.comparison()
        self.assertEqual([entry["label"] for entry in result["runs"]], ["large", "small"])
        self.assertEqual(result["runs"][1]["choices"], ["batch"])
        self.assertEqual(self.remarks("differs"),
                         ["small against large: batch (train.steps 2 -> 8, train.batch_size 8 -> 2)"])
        self.assertEqual(self.remarks("not_comparable"), [])
        rows = list(csv.DictReader(io.StringIO(self.compare("runs", "--csv"))))
        self.assertEqual([(row["batch"], row["train.batch_size"], row["train.steps"]) for row in rows],
                         [("large", "8", "2"), ("small", "2", "8")])
        self.write("runs/labels.json", "{}")
        self.assertIn("labels.json: is damaged", self.compare("runs", code=1))

    def test_named_values_are_one_key_of_a_grid(self):
        values = {f"{name}{layers}": (merged(changes, {"model": {"n_layer": layers}}), [2.5 + layers, 2.6 + layers])
                  for name, changes in BATCH.items() for layers in (1, 2)}
        self.make_named(values)
        runs = {f"{name}-{seed}": {"batch": name[:-1]} for name in values for seed in (1, 2)}
        self.write("runs/labels.json", json.dumps({"keys": NAMED_KEYS, "runs": runs}))
        result = self.comparison()
        self.assertEqual([entry["label"] for entry in result["runs"]],
                         ["large · L 1", "large · L 2", "small · L 1", "small · L 2"])
        self.assertEqual(result["key"], "batch")
        self.assertEqual([(pair["group"], pair["partner"], pair["setting"], pair["values"])
                          for pair in result["paired"]],
                         [("small · L 1", "large · L 1", "L 1", ["small", "large"]),
                          ("small · L 2", "large · L 2", "L 2", ["small", "large"])])

    def test_losses_after_other_tokens_are_not_comparable_under_names_either(self):
        longer = merged(BATCH["large"], {"train": {"steps": 3}})
        self.make_named({"large": (BATCH["large"], [2.5, 2.6]), "longer": (longer, [2.4, 2.5])})
        self.assertIn("other train.steps (at unequal tokens)", self.remarks("not_comparable")[0])

    def test_a_case_is_called_by_its_name_and_compared_by_its_keys(self):
        post = {"model": {"norm_placement": "post"}}
        warm = merged(post, {"train": {"warmup_steps": 1}})
        keys = {"case": ["model.norm_placement", "train.warmup_steps"]}
        self.make_named({"warm, up": (warm, [2.4, 2.5])}, "case", keys,
                        {"a": ({}, [2.5, 2.6]), "b": (post, [2.7, 2.8])})
        result = self.comparison()
        self.assertEqual([entry["label"] for entry in result["runs"]], ["pre", "post", "warm, up"])
        self.assertIn("warm, up against post: train.warmup_steps 0 -> 1", self.remarks("differs"))
        self.assertIn("\nwarm, up ", self.compare("runs"))
        styled = layout.styled([entry["group"] for entry in result["runs"]])
        self.assertEqual(len({(group.color, group.dash) for group in styled}), 3)
        self.clear()
        values = {name: ({"train": {"warmup_steps": steps}}, [2.4, 2.5]) for name, steps in (("cold", 0), ("warm", 1))}
        self.make_named(values, "case", {"case": ["train.warmup_steps"]})
        self.assertEqual(self.labels(), ["cold", "warm"])
        self.assertEqual(self.labels("runs/warm-1", "runs/warm-2"), ["pre · layernorm"])


if __name__ == "__main__":
    unittest.main()
