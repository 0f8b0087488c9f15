#!/usr/bin/python3
"""`normscope explain`: every number recomputed with numpy, equations of placements, a config's blocks."""

import math
import re
import unittest

import numpy as np
from cli import CliTest

EPS = 1e-5
erf = np.vectorize(math.erf)
# Which axes of (sequences, tokens, features) share a mean and a variance.
AXES = {"layernorm": 2, "batchnorm": (0, 1), "instancenorm": 1}


def numbers(text):
    return np.array([float(word) for word in text.split()])


def standardised(x, axis=None):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + EPS)


def normalised(norm, x):
    """x̂ of one vector; norms over tokens take it for one feature of several tokens."""
    if norm == "groupnorm":
        return np.concatenate([standardised(half) for half in np.split(x, 2)])
    return {"rmsnorm": x / np.sqrt((x**2).mean() + EPS), "dyt": np.tanh(x / 2), "derf": erf(x / 2)}.get(norm, standardised(x))


class Explain(CliTest):
    def explain(self, *arguments):
        return self.normscope("explain", *arguments).stdout

    def close(self, printed, expected, context=""):
        np.testing.assert_allclose(printed, expected, rtol=6e-4, atol=6e-5, err_msg=context)

    def check_steps(self, page, x):
        """Every step of layernorm that `page` prints, of the vector x."""
        mu, var = x.mean(), x.var()
        expected = {"x": x, "μ": mu, "x − μ": x - mu, "(x − μ)²": (x - mu)**2, "σ²": var, "√(σ² + ε)": math.sqrt(var + EPS),
                    "σ + ε": math.sqrt(var) + EPS, "x̂": standardised(x), "γ": np.ones_like(x), "β": 0 * x, "y": standardised(x),
                    "standardised": (x - mu) / x.std(ddof=1), "min-max": (x - x.min()) / np.ptp(x)}
        steps = re.findall(r"(?m)^  (\S.*?)  .*= (.*)$", page)
        self.assertEqual([name for name, _ in steps], list(expected))
        for name, value in steps:
            self.close(numbers(value), expected[name], name)

    def test_layernorm_of_1_2_3_4_is_that_of_the_textbooks(self):
        page = self.explain("--norm", "layernorm")
        self.check_steps(page, np.array([1.0, 2, 3, 4]))
        for words in ("= 2.5\n", "= 1.25\n", "1.118038", "1.118044", "-1.3416  -0.4472  0.4472  1.3416", "weight in PyTorch"):
            self.assertIn(words, page)

    def test_layernorm_of_any_vector(self):
        for x in ([0.5, -2, 7, 1, 3], [1e6, 2e6, -3e6], [5, 5, 5.001]):
            self.check_steps(self.explain("--vector=" + ",".join(map(str, x))), np.array(x))

    def test_every_norm_arrives_at_the_engine_s_result(self):
        x = np.array([0.5, -2, 7, 1])
        for norm in ("layernorm", "rmsnorm", "batchnorm", "groupnorm", "instancenorm", "dyt", "derf"):
            page = self.explain("--norm", norm, "--vector", "0.5,-2,7,1")
            found = dict(re.findall(r"(?m)^  (x̂|y) .*= (.*)$", page))
            self.close(numbers(found["y"]), normalised(norm, x), norm)
            by_hand = np.concatenate([numbers(value) for value in re.findall(r"(?m)^  x̂ .*= (.*)$", page)])
            self.close(by_hand, normalised(norm, x), norm)
        self.assertIn("leaks", self.explain("--norm", "batchnorm"))
        self.close(numbers(re.search(r"  y .*= (.*)", self.explain("--norm", "none"))[1]), [1, 2, 3, 4])

    def test_gains_and_biases(self):
        x, gain, bias = np.array([0.5, -2, 7, 1]), np.array([2.0, 1, 0.5, -1]), np.array([0.0, 1, 2, -3])
        for given, factors in ((["--gain", "2,1,0.5,-1", "--bias=0,1,2,-3"], (gain, bias)), (["--gain", "2", "--bias", "0.5"], (2, 0.5))):
            for norm in ("layernorm", "groupnorm", "dyt"):
                page = self.explain("--norm", norm, "--vector", "0.5,-2,7,1", *given)
                self.close(numbers(re.search(r"  y .*= (.*)", page)[1]), factors[0] * normalised(norm, x) + factors[1], norm)

    def test_a_matrix_by_its_axes(self):
        x = np.array([[1.0, 2], [3, 5], [0, 4]])
        page = self.explain("--norm", "layernorm", "--matrix", "1,2;3,5;0,4", "--gain", "2,3", "--bias", "1,0")
        rows = [numbers(line) for line in page.split("a token:\n")[1].splitlines()]
        self.close(rows, standardised(x, 1) * [2, 3] + [1, 0])
        self.assertEqual(self.explain("--matrix", "1,2;3,4").count(", over "), 7)

    def test_the_lesson(self):
        page = self.explain("--all")
        self.assertLessEqual(len(page.splitlines()), 200)
        self.assertEqual(len(re.findall(r"(?m)^== \d\. .* ==$", page)), 6)
        self.check_steps(page.split("== 2.")[0], np.array([1.0, 2, 3, 4]))
        x = np.array([[[1, 2, 3, 6], [2, 2, 4, 0]], [[9, 5, 1, 3], [0, 4, 8, 2.0]]])
        for norm, axis in AXES.items():
            block = re.search(rf"(?ms)^{norm}, over [^\n]*:\n(.*?)\n\n(?=\w|  try)", page)[1]
            self.close([numbers(line) for line in block.splitlines() if line.strip()], standardised(x, axis).reshape(4, 4), norm)
        groups = re.search(r"(?ms)^groupnorm, over [^\n]*:\n(.*?)\n\n(?=\w)", page)[1]
        self.close([numbers(line) for line in groups.splitlines() if line.strip()], standardised(x.reshape(8, 2), 1).reshape(4, 4))
        mean, var = 0, 1
        for (name, value), batch in zip(re.findall(r"(?m)^  running (mean|var) .*= (.*)$", page),
                                        [batch for batch in ([1, 2, 3, 4.0], [2, 3, 4, 5.0], [2, 4, 6, 8.0]) for _ in range(2)]):
            mean, var = (0.9 * mean + 0.1 * np.mean(batch), var) if name == "mean" else (mean, 0.9 * var + 0.1 * np.var(batch, ddof=1))
            self.close(float(value), mean if name == "mean" else var, name)
        for command in re.findall(r"try: normscope (\w+)", page):
            self.assertIn(command, ("train", "check", "probe"))

    def test_placements(self):
        for name, drawing, gradient in (("pre", "x ─┬─[ N ]─[ F ]─(+)─ y", "dx = (1 + F′) dy"),
                                        ("post", "x ─┬─[ F ]─(+)─[ N ]─ y", "dx = (1 + F′) N′ dy"),
                                        ("deepnorm", "└─[ ·α ]─", "dx = (α + F′) N′ dy"), ("rezero", "[ ·a ]", "dx = (1 + a·F′) dy")):
            page = self.explain("--placement", name)
            self.assertIn(drawing, page)
            self.assertIn(gradient, page)
            for line in (lines := page.splitlines())[3:4]:  # the skip connection ends below the sum
                self.assertEqual(line.index("(+)"), lines[4].rindex("┘") - 1)
        self.assertIn("α = 2.2134", self.explain("--placement", "deepnorm"))

    def test_a_config(self):
        self.config()
        page = self.explain("tiny.json", "--set", "model.activation=swiglu", "--set", "model.ffn_bias=true", "--set",
                            'model.norm_placement=["post","sandwich"]')
        for line in ("    x = attn_norm(x + attention(x))\n", "    x = x + ffn_post_norm(ffn(ffn_norm(x)))\n",
                     "  attention(x) = softmax(q kᵀ/√8, causal)·v·W_out, q, k, v = x·W_qkv\n",
                     "  ffn(x) = silu(x·W_gate + b)·(x·W_in + b)·W_out + b\n", "logits = head(final_norm(x))"):
            self.assertIn(line, page)
        counts = [int(number.replace(",", "")) for number in re.findall(r"(?m)^(?:embeddings|block 1 of 2|head.*norm|in all) +([\d,]+)", page)]
        run = self.train("run", {"model": {"activation": "swiglu", "ffn_bias": True, "norm_placement": ["post", "sandwich"]}})
        self.assertEqual(counts[-1], run.summary["params"])
        blocks = [sum(tensor.size for name, tensor in run.tensors().items() if name.startswith(start))
                  for start in ("embed", "blocks.0", "final_norm")]
        self.assertEqual(counts[:3], blocks)

    def test_mistakes_are_named(self):
        for given, words in ((["--norm", "rmsnorm", "--bias", "1,2,3,4"], "--bias: rmsnorm has none"),
                             (["--gain", "1,2"], "--gain: got 2 numbers; expected 1, or one per feature: 4"),
                             (["--matrix", "1,2;3"], "--matrix: row 2 has 1 numbers; expected 2"),
                             (["--vector", "1,2;3,4"], "--vector: got 2 rows; expected one, or --matrix"),
                             (["--matrix", "1,2;x,3"], "--matrix: got 'x'"), (["--vector", "1e200,1"], "--vector: got '1e200'"),
                             (["--norm", "layrnorm"], "did you mean layernorm?")):
            self.refused("explain", *given, says=[words])


if __name__ == "__main__":
    unittest.main()
