#!/usr/bin/python3
"""Plants faults in the scripts, one at a time, and requires that a test of their own fails: a standard error with n, a
mean over diverged seeds, a wrong pair, a swapped axis, a claim whose bounds are turned.

A fault is a function that is replaced, or edited, while one test runs. The test must pass without it.
"""

import contextlib
import inspect
import math
import statistics
import sys
import textwrap
import unittest
from unittest import mock

import numpy as np
import test_compare
import test_compare_pairs
import test_instruments
import test_papers
import test_plots_values
import test_predict

from lib.compare import groups, pairs
from lib.figures import panels, plot_heatmap, plot_loss
from lib.model import forward, measures
from lib.theory import mean_field
from papers import centred, clustering, direction, gain, gap, radial, spikes, steady
from papers.lib import papers


@contextlib.contextmanager
def replaced(function, other):
    """Replaces a function in all modules that have it."""
    with contextlib.ExitStack() as stack:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(function.__name__) is function:
                stack.enter_context(mock.patch.object(module, function.__name__, other))
        yield


def edited(function, text, becomes):
    """The function with an edit of its source, in which the text stands once."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(text) == 1, f"{function.__name__} holds this text {source.count(text)} times, not once: {text}"
    names = {}
    exec(source.replace(text, becomes), function.__globals__, names)
    return names[function.__name__]


def with_edit(function, text, becomes, owner=None):
    """Plants an edit of a function, or of a method of a class."""
    other = edited(function, text, becomes)
    return mock.patch.object(owner, function.__name__, other) if owner else replaced(function, other)


def all_against_the_base(groups, base, _):
    return [pairs.pairing_with(group, base) for group in groups if group is not base]


def with_its_own(net, name, y, axis):
    net.own[name] = forward.Decoder.deviation(net, name, y, axis)
    return net.own[name]


# (fault, the module of the test that must fail, the test's name, what plants the fault)
FAULTS = [
    ("a standard error over n, not n - 1", test_compare, "test_paired_figures_are_those_of_the_differences",
     lambda: mock.patch.object(statistics, "stdev", statistics.pstdev)),
    ("a mean over seeds that diverged or were interrupted", test_compare, "test_only_shared_seeds_that_are_done_count",
     lambda: with_edit(pairs.values_by_seed, 'run.record["status"] == "done" and ', "")),
    ("a partner that differs in several choices", test_compare_pairs, "test_pairs_and_figures_of_random_folders",
     lambda: replaced(pairs.pairings_of, all_against_the_base)),
    ("the largest difference in place of the mean", test_compare, "test_paired_figures_are_those_of_the_differences",
     lambda: mock.patch.object(statistics, "fmean", lambda values: max(values))),
    ("Student's t with n degrees of freedom, not n - 1", test_compare, "test_verdicts",
     lambda: with_edit(pairs.verdict_on, "len(differences) - 1)", "len(differences))")),
    ("means over all seeds where half of them diverged", test_compare, "test_a_mean_over_survivors_is_biased",
     lambda: with_edit(groups.Group.metric_values, "len(self.diverged) == len(self.runs)",
                       "2 * len(self.diverged) >= len(self.runs)", groups.Group)),
    ("the median of the seeds as their line", test_plots_values, "test_loss_against_tokens_and_seconds",
     lambda: with_edit(panels.band, "np.nanmean", "np.nanmedian")),
    ("error bars upside down", test_plots_values, "test_loss_against_tokens_and_seconds",
     lambda: with_edit(plot_loss.draw_group, "spread = [losses.mean - losses.least, losses.most - losses.mean]",
                       "spread = [losses.most - losses.mean, losses.mean - losses.least]")),
    ("a training loss that is smoothed over a tenth of its rows", test_plots_values, "test_smoothing",
     lambda: with_edit(plot_loss.smooth, "values.size / 40", "values.size / 20")),
    ("a limit that shrinks by the number of seeds, not by its root", test_predict, "test_limits",
     lambda: with_edit(mean_field.allowed, "math.sqrt(seeds)", "seeds")),
    ("a map whose blocks run downward", test_plots_values, "test_the_cells_drawn_are_the_values_block_upward",
     lambda: with_edit(plot_heatmap.draw_map, "axes.pcolormesh(x, y, shown,", "axes.pcolormesh(x, y, shown[::-1],")),
    ("a deviation that is averaged over sequences, not over tokens too", test_papers, "test_frozen_norms",
     lambda: mock.patch.object(measures.freeze, "__defaults__", (lambda rows: rows.mean(0, keepdims=True),))),
    ("a frozen norm that keeps each row's own deviation", test_papers, "test_frozen_norms",
     lambda: mock.patch.object(measures.Frozen, "deviation", with_its_own)),
    ("a branch's warm-up that does not know its block", test_instruments, "test_a_frozen_loss_is_the_programs",
     lambda: with_edit(forward.Decoder.sublayer, "self.progress / block", "self.progress", forward.Decoder)),
    ("frozen norms of whole branches during their warm-up", test_instruments, "test_a_frozen_loss_is_the_programs",
     lambda: mock.patch.object(measures.run_weights, "branch_progress", lambda *_: math.inf)),
    ("frozen norms on the first window of the validation text", test_instruments, "test_a_frozen_loss_is_the_programs",
     lambda: with_edit(measures.validation_windows, "np.arange(count) * whole // count", "np.zeros(count, int)")),
    ("the mean of a vector beside its rms, not its mean square", test_papers,
     "test_a_mean_is_measured_beside_that_of_a_random_direction",
     lambda: with_edit(centred.mean_over_law, "(x * x).mean(-1)", "(x * x).mean(-1) ** 0.5")),
    ("a power of depth, not of the mean square", test_papers,
     "test_tables_claims_and_pictures_are_those_of_the_kept_results",
     lambda: mock.patch.object(clustering, "log_slope", lambda x, y: papers.log_slope(np.arange(1, len(x) + 1), y))),
    ("a gap at the nearest evaluation, not between two", test_papers, "test_a_gap_is_taken_at_an_equal_training_loss",
     lambda: mock.patch.object(gap.np, "interp", lambda x, known, values: values[np.argmin(np.abs(known - x))])),
    ("a law of lengths without decay", test_papers, "test_lengths_of_weights_before_a_norm_follow_their_law",
     lambda: with_edit(radial.law_of_length, "rate * decay", "0")),
    ("the direction of a matrix's outputs, not of its inputs", test_papers, "test_centring_leaves_a_direction_to_decay",
     lambda: with_edit(direction.along_ones, "axis=1", "axis=0")),
    ("the size of a steady weight, squared", test_papers,
     "test_tables_claims_and_pictures_are_those_of_the_kept_results",
     lambda: with_edit(steady.law, "np.sqrt(", "(")),
    ("a spike beside the calm of the whole run", test_papers, "test_a_spike_is_measured_beside_the_calm_before_it",
     lambda: mock.patch.object(spikes, "BEFORE", 10 ** 6)),
    ("v without its memory", test_papers, "test_v_and_the_curvature_along_adams_step",
     lambda: with_edit(spikes.curves, "np.sqrt(v)[shown]", "gradient[shown]")),
    ("gain and bias of the blocks from the last", test_papers,
     "test_a_block_whose_norms_have_no_gain_and_bias_loses_nothing_without_them",
     lambda: with_edit(gain.rises, 'range(run.value("model.n_layer"))', 'reversed(range(run.value("model.n_layer")))')),
    ("a claim whose bounds are turned", test_papers, "test_a_missed_claim_is_a_failure",
     lambda: with_edit(papers.Claim.verdict.fget, "self.low <= self.value <= self.high",
                       "self.high <= self.value <= self.low", papers.Claim)),
]


def failures_of(module, test_name):
    """The failures of a test that any class of this module has."""
    (case,) = [case for case in vars(module).values() if isinstance(case, type) and test_name in vars(case)]
    result = unittest.TestResult()
    unittest.TestSuite([case(test_name)]).run(result)
    exits = [error for error in result.errors if "SystemExit: " in error[1]]  # a command refused what it was given
    assert result.testsRun == 1 and not result.skipped and result.errors == exits, (test_name, result.errors)
    return [text for _, text in result.failures + exits]


class ScriptTeeth(unittest.TestCase):
    def test_tests_pass_without_a_fault(self):
        for module, test_name in dict.fromkeys((module, test_name) for _, module, test_name, _ in FAULTS):
            self.assertEqual(failures_of(module, test_name), [], test_name)

    def test_each_fault_is_caught(self):
        for fault, module, test_name, plant in FAULTS:
            with self.subTest(fault), plant():
                self.assertNotEqual(failures_of(module, test_name), [], f"{test_name} does not notice")


if __name__ == "__main__":
    unittest.main()
