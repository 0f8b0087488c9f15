#!/usr/bin/python3
"""`normscope explain`: every number recomputed with numpy, equations of placements, a config's blocks."""

import math
import os
import re
import shlex
import unittest

import numpy as np
from cli import ROOT, CliTest

EPS = 1e-5
X = np.array([1.0, 2, 3, 4])
erf = np.vectorize(math.erf)


def numbers(text):
    return np.array([float(word) for word in text.split()])


def standardised(x, axis=None):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + EPS)


def normalised(norm, x):
    """x̂ of one vector; norms over tokens take it for one feature of several tokens."""
    if norm == "groupnorm":
        return np.concatenate([standardised(half) for half in np.split(x, 2)])
    others = {"rmsnorm": x / np.sqrt((x**2).mean() + EPS), "dyt": np.tanh(x / 2), "derf": erf(x / 2)}
    return others.get(norm, standardised(x))


def scalings(x):
    return {"standardised": (x - x.mean()) / x.std(ddof=1), "min-max": (x - x.min()) / np.ptp(x)}


class Explain(CliTest):
    def explain(self, *arguments):
        return self.normscope("explain", *arguments).stdout

    def close(self, printed, expected, context=""):
        np.testing.assert_allclose(printed, expected, rtol=6e-4, atol=6e-5, err_msg=context)

    def check_steps(self, page, expected):
        steps = re.findall(r"(?m)^  (\S.*?)  .*= (.*)$", page)
        self.assertEqual([name for name, _ in steps], list(expected))
        for name, value in steps:
            self.close(numbers(value), expected[name], name)

    def check_layernorm(self, page, x, gain=(1,), bias=(0,), rest=()):
        """Every step of layernorm that `page` prints, of the vector x, and the steps `rest`."""
        mu, var = x.mean(), x.var()
        self.check_steps(page, {
            "x": x, "μ": [mu], "x − μ": x - mu, "(x − μ)²": (x - mu)**2, "σ²": [var],
            "√(σ² + ε)": [math.sqrt(var + EPS)],
            "σ + ε": [math.sqrt(var) + EPS], "x̂": standardised(x), "γ": gain, "β": bias,
            "y": gain * standardised(x) + bias,
            **dict(rest)})

    def test_layernorm_of_1_2_3_4_is_that_of_the_textbooks(self):
        page = self.explain("--norm", "layernorm")
        self.check_layernorm(page, X, rest=scalings(X))
        for words in ("= 2.5\n", "= 1.25\n", "1.118038", "1.118044", "-1.3416  -0.4472  0.4472  1.3416",
                      "weight in PyTorch"):
            self.assertIn(words, page)

        for x in ([0.5, -2, 7, 1, 3], [1e6, 2e6, -3e6], [5, 5, 5.001]):
            self.check_layernorm(self.explain("--vector=" + ",".join(map(str, x))), np.array(x),
                                 rest=scalings(np.array(x)))

    def test_the_steps_of_every_norm_lead_to_the_engine_s_result(self):
        x, gain, bias = np.array([0.5, -2, 7, 1]), np.array([2.0, 1, 0.5, -1]), np.array([0.0, 1, 2, -3])
        for norm in ("layernorm", "rmsnorm", "batchnorm", "groupnorm", "instancenorm", "dyt", "derf"):
            has_bias = norm != "rmsnorm"
            page = self.explain("--norm", norm, "--vector", "0.5,-2,7,1", "--gain", "2", *["--bias=0.5"] * has_bias)
            steps = np.concatenate([numbers(value) for value in re.findall(r"(?m)^  x̂ .*= (.*)$", page)])
            self.close(steps, normalised(norm, x), norm)
            self.close(numbers(re.search(r"(?m)^  y .*= (.*)$", page)[1]), 2 * steps + 0.5 * has_bias, norm)
        page = self.explain("--norm", "layernorm", "--vector", "0.5,-2,7,1", "--gain", "2,1,0.5,-1", "--bias=0,1,2,-3")
        self.close(numbers(re.search(r"(?m)^  y .*= (.*)$", page)[1]), gain * standardised(x) + bias)
        self.assertIn("leaks", self.explain("--norm", "batchnorm"))
        self.close(numbers(re.search(r"  y .*= (.*)", self.explain("--norm", "none"))[1]), [1, 2, 3, 4])

    def test_a_matrix_by_its_axes(self):
        x = np.array([[1.0, 2], [3, 5], [0, 4]])
        page = self.explain("--norm", "layernorm", "--matrix", "1,2;3,5;0,4", "--gain", "2,3", "--bias", "1,0")
        self.close([numbers(line) for line in page.splitlines()[-3:]], standardised(x, 1) * [2, 3] + [1, 0])
        x = np.array([[1.0, 2, 3, 6], [2, 2, 4, 0], [9, 5, 1, 3]])
        page = self.explain("--matrix", "1,2,3,6;2,2,4,0;9,5,1,3")
        found = re.findall(r"(?ms)^(\w+): .*?^  μ = (.*?)\n(.*?)(?=\n\n\w|\Z)", page)
        axes = {"layernorm": 1, "groupnorm": 2, "batchnorm": 0, "instancenorm": 0}  # which share a mean
        self.assertEqual([norm for norm, *_ in found], list(axes))
        for norm, mean, rows in found:
            groups = x.reshape(3, 2, 2) if norm == "groupnorm" else x
            self.close(numbers(mean), groups.mean(axes[norm]).ravel(), norm)
            self.close(numbers(rows), standardised(groups, axes[norm]).ravel(), norm)

    def test_the_lesson(self):
        with open(os.path.join(ROOT, "configs/course/NORMS.md"), encoding="utf-8") as file:
            page = file.read()
        outputs = re.findall(r"```sh\nbuild/normscope explain (.*)\n```\n\n```\n([^`]*)```", page)
        self.assertEqual(len(outputs), 4)
        for arguments, output in outputs:
            self.assertEqual(output, self.explain(*shlex.split(arguments)))
        for command, arguments in re.findall(r"`build/normscope (train|probe|check) (.*?)`", page):
            self.normscope("config", *arguments.replace("configs/", os.path.join(ROOT, "configs/")).split())
        rescaled = scalings(X) | {norm: normalised(norm, X) for norm in ("layernorm", "rmsnorm", "dyt", "derf")}
        rows = re.findall(r"(?m)^\| ([\w-]+) \| .* \| ([-\d. ]+) \|$", page.split("## 2.")[0])
        self.assertEqual([name for name, _ in rows], list(rescaled))
        for name, values in rows:
            self.close(numbers(values), rescaled[name], name)
        running = np.array([0, 1])
        updates = re.findall(r"(?m)^\| ([1-9 ]{7}) .* 0\.1·(\S+) = (\S+) .* 0\.1·(\S+) = (\S+) ", page)
        self.assertEqual([batch for batch, *_ in updates], ["1 2 3 4", "2 4 6 8"])
        for batch, mean, running_mean, var, running_var in updates:
            now = [numbers(batch).mean(), numbers(batch).var(ddof=1)]
            running = 0.9 * running + 0.1 * np.array(now)
            self.close(numbers(f"{mean} {var} {running_mean} {running_var}"), [*now, *running])
        powers = re.findall(r"([\d.]+)\^12 = ([\d.e-]+\d)", page)
        self.assertEqual(len(powers), 3)
        for base, power in powers:
            np.testing.assert_allclose(float(power), float(base)**12, rtol=6e-4)

    def test_placements(self):
        for name, drawing, gradient in (("pre", "x ─┬─[ N ]─[ F ]─(+)─ y", "dx = (1 + F′) dy"),
                                        ("post", "x ─┬─[ F ]─(+)─[ N ]─ y", "dx = (1 + F′) N′ dy"),
                                        ("deepnorm", "└─[ ·α ]─", "dx = (α + F′) N′ dy"),
                                        ("rezero", "[ ·a ]", "dx = (1 + a·F′) dy")):
            page = self.explain("--placement", name)
            self.assertIn(drawing, page)
            self.assertIn(gradient, page)
            lines = page.splitlines()
            self.assertEqual(lines[3].index("(+)"), lines[4].rindex("┘") - 1)  # the skip connection ends below the sum
        page = self.explain("--placement", "deepnorm")
        self.close(numbers("".join(re.findall(r"(?:α =|start at)( [\d.]+)", page))), [24**0.25, 96**-0.25])

    def test_the_factor_of_a_norm_on_the_sum(self):
        x, F, g = np.random.default_rng(1).standard_normal((3, 100_000))
        for name, alpha in (("post", 1), ("deepnorm", 24**0.25), ("keel", 24)):
            page = self.explain("--placement", name)
            shares = re.search(r"L = 12: ([\d.]+) in a sublayer, ([\d.e-]+) in 24 sublayers", page).groups()
            one, all_of_them = map(float, shares)
            total = alpha * x + F
            normed = (total - total.mean()) / total.std()
            dx = alpha * (g - g.mean() - normed * (g * normed).mean()) / total.std()
            self.assertAlmostEqual(one, np.linalg.norm(dx) / np.linalg.norm(g), delta=0.01)
            np.testing.assert_allclose(all_of_them, (alpha**2 / (alpha**2 + 1)) ** 12, rtol=5e-3)
            self.assertIn("Attention averages tokens", page)
        self.assertNotIn("Attention averages tokens", self.explain("--placement", "pre"))

    def test_a_config(self):
        self.config()
        page = self.explain("tiny.json", "--set", "model.activation=swiglu", "--set", "model.ffn_bias=true", "--set",
                            'model.norm_placement=["post","sandwich"]')
        for line in ("    x = attn_norm(x + attention(x))\n", "    x = x + ffn_post_norm(ffn(ffn_norm(x)))\n",
                     "logits = head(final_norm(x))"):
            self.assertIn(line, page)
        self.assertNotIn("embed_norm", page)
        self.assertIn(", then embed_norm\n", self.explain("tiny.json", "--set", "model.embed_norm=true"))
        counts = {name: int(number.replace(",", ""))
                  for name, number in re.findall(r"(?m)^(\S+)(?:, with .*)? +([\d,]+)$", page)}
        run = self.train("run",
                         {"model": {"activation": "swiglu", "ffn_bias": True, "norm_placement": ["post", "sandwich"]}})
        self.assertEqual(counts.pop("all"), run.summary["params"])
        self.assertEqual(counts, {name: tensor.size for name, tensor in run.tensors().items()
                                  if not name.startswith("blocks.1.")})


if __name__ == "__main__":
    unittest.main()
