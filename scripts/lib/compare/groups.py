"""Groups of runs that differ only in their seed. labels.py makes their labels."""

import collections
import copy
import json
import os
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.base.progress import counted
from lib.compare.configs import Config, configs_of
from lib.compare.labels import RUN, set_labels, value_text
from lib.logs.runs import NORM, PLACEMENT, shortened

MEAN, GEOMETRIC = "mean and range of", "geometric mean and range of"  # seeds


class Group:
    """Runs that differ only in their seed.

    runs      list of Run
    config    their Config

    labels.set_labels sets

    varied    {key or grid entry in which the groups differ by choice: the group's value}
    labelled  {key or grid entry in the label: the group's value}
    run_name  the name of runs that come from no sweep; of others the first folder if nothing else distinguishes the
              group from another, or ""
    label     text, unique among the groups

    and layout.styled the colour, dash, marker and panel of the group in a figure."""

    def __init__(self, runs, label="", config=None):
        self.runs, self.label, self.config = runs, label, config or Config(runs[0])
        self.varied, self.labelled, self.run_name = {}, {}, ""

    @property
    def placement(self):
        """The placement's name, or JSON if the blocks' placements differ."""
        written = self.runs[0].value(PLACEMENT)
        return written if isinstance(written, str) else json.dumps(written)

    @property
    def parts(self):
        """{key: the part of the label about it}; RUN stands for the name of the runs."""
        name = {RUN: printable(self.run_name)} if self.run_name else {}
        return name | {key: value_text(key, value) for key, value in self.labelled.items()}

    def is_named(self, name):
        """Whether `name` is the group's label, the folder of one of its runs, or the last part of such a folder."""
        path = os.path.normpath(name)
        return name == self.label or any(path in (os.path.normpath(run.folder), run.folder.name) for run in self.runs)

    def restricted_to(self, runs):
        """A copy of the group that has only these runs."""
        group = copy.copy(self)
        group.runs = runs
        return group

    def value(self, key):
        """As Config.value."""
        return self.config.value(key)

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def metric_values(self, key):
        """The values of a metric, one for each run that has it: means and standard errors are taken over these.
        Diverged runs, whose last loss would spoil a mean, are left out unless all diverged; unfinished runs count."""
        counted = self.runs if len(self.diverged) == len(self.runs) else [run for run in self.runs if not run.diverged]
        return [run.record[key] for run in counted if run.record.get(key) is not None]

    def legend(self, statistic=MEAN):
        """The label with notes: "post (mean and range of 3 seeds, 1 diverged)". `statistic`: what is drawn of the
        seeds; None omits that note."""
        notes = [f"{statistic} {len(self.runs)} seeds"] if statistic and len(self.runs) > 1 else []
        if self.diverged and len(self.runs) > 1:
            notes.append(f"{len(self.diverged)} diverged")
        elif self.diverged:
            step = self.runs[0].diverged_at()
            notes.append("diverged" if step is None else f"diverged at step {step}")
        return shortened(self.label, 90) + (f" ({', '.join(notes)})" if notes else "")


def group_by_config(runs):
    """The groups in the order of their first runs. A second run of the same config and seed (a copy, or a repeat by
    another build) starts another group."""
    groups, counts = {}, collections.Counter()
    for run, config in zip(runs, configs_of(runs)):
        values = json.dumps(config.values)
        repeat = counts[values, run.seed]
        counts[values, run.seed] += 1
        groups.setdefault((values, repeat), Group([], config=config)).runs.append(run)
    set_labels(list(groups.values()))
    return list(groups.values())


def base_of(groups, name=None):
    """(the base of the comparison, None): the group with that label or run folder; without a name, the first group. Or
    (the first group with that value in its label, the value's key). ScriptError: there is neither."""
    named = [(group, None) for group in groups if name is None or group.is_named(name)]
    named += [(group, key) for group in groups for key, text in group.parts.items() if text == name and key != RUN]
    if not named:
        values = dict.fromkeys(text for group in groups for text in group.parts.values())
        raise ScriptError(f"--base: got {printable(name)}; expected a run's folder, a label, or a value in one: "
                          f"{'; '.join(values)}")
    return named[0]


# ---- settings in common ---------------------------------------------------------------------------------------


def shared_seeds(groups):
    """The number of seeds if several groups have equally many, more than one; else 0."""
    seeds = {len(group.runs) for group in groups}
    return seeds.pop() if len(groups) > 1 and len(seeds) == 1 and seeds != {1} else 0


def shared_settings(groups, statistic=MEAN):
    """The settings that all runs share, as a subtitle: "mean and range of 3 seeds · 12 blocks · width 64 · lr 0.001".
    `statistic`: as in Group.legend."""
    runs = [run for group in groups for run in group.runs]

    def common(key, form="{}"):
        values = {json.dumps(run.value(key)) for run in runs}
        value = json.loads(values.pop()) if len(values) == 1 else None
        return None if value is None or isinstance(value, (list, dict)) else form.format(value)

    layers, seeds = common("model.n_layer"), shared_seeds(groups)
    parts = [seeds and f"{statistic} {seeds} seeds", layers and counted(int(layers), "block"),
             common("model.d_model", "width {}"), common("model.context", "context {}")]
    if len(groups) > 1:  # the label of a single group has both
        parts += [common(PLACEMENT), common(NORM)]
    parts.append(common("model.init.scheme"))
    if not all(run.probe for run in runs):
        parts += [common("train.optimizer"), common("train.lr", "lr {:g}")]
    texts = {tuple(Path(path).stem for path in run.texts()) for run in runs}
    parts += [" + ".join(names) for names in texts if len(texts) == 1]
    parts.append(common("train.seed", "seed {}"))
    return " · ".join(part for part in parts if part)
