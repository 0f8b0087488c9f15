#!/usr/bin/python3
"""Every number of `normscope explain --all`, of vectors with gains and biases and of matrices, recomputed by numpy."""

import math
import re
import unittest

import numpy as np

from cli import CliTest

MATRIX = np.array([[1, 2, 3, 6], [2, 2, 4, 0], [9, 5, 1, 3]], float)
EPS = 1e-5
POINTWISE = {"dyt": np.tanh, "derf": np.vectorize(math.erf)}
AXIS = {"layernorm": 1, "rmsnorm": 1, "groupnorm": 1, "batchnorm": 0, "instancenorm": 0}


def numbers(text):
    return [float(word) for word in re.findall(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan)", text)]


def normalised(kind, x):
    """What numpy makes of tokens × features."""
    if kind in POINTWISE:
        return POINTWISE[kind](0.5 * x)
    if kind == "rmsnorm":
        return x / np.sqrt((x ** 2).mean(1, keepdims=True) + EPS)
    parts = np.concatenate([x.reshape(2 * len(x), -1)]) if kind == "groupnorm" else x
    axis = AXIS[kind]
    z = (parts - parts.mean(axis, keepdims=True)) / np.sqrt(parts.var(axis, keepdims=True) + EPS)
    return z.reshape(x.shape)


class Numbers(CliTest):
    def close(self, shown, expected, what):
        shown, expected = np.ravel(shown), np.ravel(expected)
        self.assertEqual(shown.shape, expected.shape, what)
        np.testing.assert_allclose(shown, expected, rtol=6e-4, atol=6e-5, err_msg=what)

    def check_vector(self, page, kind, x, gain=1.0, bias=0.0):
        """Each line `what formula = number` of a norm's page; how many were recomputed."""
        checked, part, seen = 0, x, {}
        for line in page.splitlines():
            if found := re.match(r"  group \d of 2: (.*)", line):
                part, seen = np.array(numbers(found[1])), {}
                continue
            if " = " not in line or re.match(r"\w|  (x =|in|Running) ", line):  # titles and words
                continue
            head, value = line.rsplit(" = ", 1)
            mu, squares = part.mean(), ((part - part.mean()) ** 2)
            centred = kind != "rmsnorm"
            root = math.sqrt(part.var() + EPS) if centred else math.sqrt((part ** 2).mean() + EPS)
            expected = {
                "Σx": part.sum(), "Σx²": (part ** 2).sum(), "x²": part ** 2, "mean of x²": (part ** 2).mean(),
                "x − μ": part - mu, "(x − μ)²": squares, "Σ(x − μ)²": squares.sum(), "√(σ² + ε)": root,
                "√(mean of x² + ε)": root, "σ² = mean of (x − μ)², biased": part.var(), "σ = √σ²": part.std(),
                "Σ(x − μ)²/(n − 1), not used here": part.var(ddof=1), "σ + ε, not used here": part.std() + EPS,
                "√(mean of x²) + ε, not used here": math.sqrt((part ** 2).mean()) + EPS,
                "z = (x − μ)/√(σ² + ε)": (part - mu) / root, "z = x / rms": part / root,
                "mean of z; deviation of z": [0, part.std() / root], "rms of z": 1,
                "αx, α = 0.5": 0.5 * part, "αx + s, α = 0.5, s = 0": 0.5 * part,
                "z = tanh(αx)": np.tanh(0.5 * part), "z = erf(αx + s)": POINTWISE["derf"](0.5 * part),
                "(x − μ)/s, s² over n − 1": (x - x.mean()) / x.std(ddof=1),
                "(x − min)/(max − min)": (x - x.min()) / np.ptp(x)}
            formula = re.sub(r"^  [\wε -]{13} +", "", head).strip()
            if line.startswith("  y = "):
                column = x[:, None] if kind in ("batchnorm", "instancenorm") else x[None]
                z = x if kind == "none" else normalised(kind, column).ravel()
                self.close(numbers(value.split("(")[0]), gain * z + bias, line)
            elif formula.startswith("μ = mean of x over "):
                self.close(numbers(value), mu, line)
            elif formula.startswith("0.9·"):  # running statistics
                old, now = map(float, re.match(r"0\.9·(\S+) \+ 0\.1·(\S+)", formula).groups())
                batch = [x, x + 1, 2 * x][len(seen.setdefault(head[:10], []))]
                self.close(now, batch.mean() if "mean" in head else batch.var(ddof=1), line)
                self.close(old, seen[head[:10]][-1] if seen[head[:10]] else float("variance" in head), line)
                seen[head[:10]].append(float(value))
                self.close(numbers(value), 0.9 * old + 0.1 * now, line)
            else:
                self.assertIn(formula, expected, line)
                self.close(numbers(value), expected[formula], line)
            checked += 1
        return checked

    def check_matrix(self, page, x):
        """The matrix by each norm, and the line of its means or rms."""
        kinds = 0
        for block in page.split("\n\n"):
            kind = block.split(",")[0].strip()
            if not re.match(r"\w+, [\w ]+:\n", block):
                continue
            rows = block.splitlines()[1:]
            z = normalised(kind, x)
            self.close([numbers(row) for row in rows[:len(x)]], z, kind)
            if kind in AXIS:
                axis = AXIS[kind]
                parts = z.reshape(2 * len(x), -1) if kind == "groupnorm" else z
                self.close(numbers(rows[len(x)].split(":")[1]), np.sqrt((parts ** 2).mean(axis)) if kind == "rmsnorm"
                           else parts.mean(axis), kind)
                if kind != "rmsnorm":
                    self.close(numbers(rows[len(x) + 1]), parts.std(axis), kind)
            kinds += 1
        return kinds

    def test_the_whole_lesson(self):
        page = self.normscope("explain", "--all").stdout
        norms, rest = page.split("tokens down, features across")
        pages = re.split(r"(?m)^(?=\w+: )", norms)[1:]
        self.assertEqual([part.split(":")[0] for part in pages][:3], ["layernorm", "rmsnorm", "batchnorm"])
        checked = [self.check_vector(part, part.split(":")[0], np.array([1.0, 2, 3, 4])) for part in pages]
        self.assertGreater(sum(checked), 60)
        self.assertGreater(min(checked[:-1]), 2)  # the last is none
        inside, outside = (numbers(line)[-1] for line in pages[0].splitlines() if line.startswith("  ε "))
        self.assertGreater(outside, inside)
        matrix, placements = re.split(r"(?m)^(?=pre: )", rest)
        self.assertEqual(self.check_matrix(matrix, MATRIX), 7)
        for name in ("pre", "post", "sandwich", "rezero", "none"):
            self.assertRegex(placements, rf"(?m)^{name}: .*\n.*\n\n    x ─┬─.*\n       └─+┘\n")
            self.assertRegex(placements, r"  gradient: dx = \(1 \+ ∂F/∂x\)·dy\n  theory: \w")

    def test_gains_and_biases(self):
        x, gain, bias = np.array([0.5, -2, 7, 1]), np.array([2.0, 1, 0.5, -1]), np.array([0.0, 1, 2, -3])
        words = [",".join(map(str, numbers)) for numbers in (x, gain, bias)]
        for kind in ("layernorm", "groupnorm", "dyt", "derf"):
            page = self.normscope("explain", "--norm", kind, "--vector", words[0], "--gain", words[1], "--bias=" + words[2]).stdout
            self.assertGreater(self.check_vector(page, kind, x, gain, bias), 4)
        page = self.normscope("explain", "--norm", "batchnorm", "--vector", words[0], "--gain", "3", "--bias", "1").stdout
        self.assertGreater(self.check_vector(page, "batchnorm", x, 3, 1), 10)  # one feature of four tokens

    def test_a_matrix_by_one_norm_with_gains(self):
        page = self.normscope("explain", "--norm", "layernorm", "--matrix", "1,2;3,5;0,4", "--gain", "2,3", "--bias", "1,0").stdout
        rows = [numbers(line) for line in page.split("layernorm, over the features:\n")[1].splitlines()[:3]]
        self.close(rows, normalised("layernorm", np.array([[1.0, 2], [3, 5], [0, 4]])) * [2, 3] + [1, 0], page)
        page = self.normscope("explain", "--matrix", "1,2,3,6;2,2,4,0;9,5,1,3").stdout
        self.assertEqual(self.check_matrix(page, MATRIX), 7)

    def test_long_vectors_are_elided(self):
        page = self.normscope("explain", "--norm", "rmsnorm", "--vector", ",".join(map(str, range(1, 513)))).stdout
        self.assertIn("x = 1.0000  2.0000  3.0000  4.0000  5.0000  6.0000  7.0000  8.0000  …  510.0000  511.0000  512.0000  "
                      "(512 numbers)", page)
        self.assertLess(len(page), 2500)

    def test_a_config_says_its_sublayers(self):
        self.config()
        said = self.normscope("explain", "tiny.json", "--set", "model.activation=swiglu", "--set", "model.ffn_bias=true").stdout
        self.assertIn("  attention(x) = softmax(q kᵀ/√8, causal)·v·W_out, q, k, v = x·W_qkv\n", said)
        self.assertIn("  ffn(x) = silu(x·W_gate + b)·(x·W_in + b)·W_out + b\n", said)

    def test_mistakes_are_named(self):
        for given, words in ((["--norm", "rmsnorm", "--bias", "1,2,3,4"], "--bias: rmsnorm has none"),
                             (["--gain", "1,2"], "--gain: got 2 numbers; expected 4"),
                             (["--norm", "batchnorm", "--gain", "1,2,3,4"], "--gain: got 4 numbers; expected 1"),
                             (["--matrix", "1,2;3"], "--matrix: row 2 has 1 numbers; expected 2"),
                             (["--matrix", "1,2;x,3"], "--matrix: got 'x'"),
                             (["--gain", "1,,2"], "--gain: got ''")):
            self.refused("explain", *given, says=[words])


if __name__ == "__main__":
    unittest.main()
