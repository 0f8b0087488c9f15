"""`normscope explain`: worked arithmetic, equations, a config's blocks."""
import os
import subprocess
import unittest

PROGRAM = os.environ.get("NORMSCOPE_BINARY", "build/normscope")
CONFIGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs")


def explain(*arguments):
    return subprocess.run([PROGRAM, "explain", *arguments], capture_output=True, text=True, check=False)


class Explain(unittest.TestCase):
    def test_layernorm_of_1_2_3_4(self):
        out = explain("--norm", "layernorm").stdout
        for number in ("2.5", "1.25", "1.118", "-1.3416  -0.4472  0.4472  1.3416"):
            self.assertIn(number, out)
        self.assertIn("0.0000  0.3333  0.6667  1.0000", out)  # min-max scaling is something else

    def test_steps_arrive_at_what_the_engine_computes(self):
        for norm in ("layernorm", "rmsnorm", "batchnorm", "instancenorm", "dyt", "derf"):
            out = explain("--norm", norm, "--vector", "0.5,-2,7,1,3").stdout
            by_hand = next(line for line in out.splitlines() if " z = " in line).split("= ")[-1].split()
            engine = next(line for line in out.splitlines() if line.startswith("  y = "))[6:].split("(")[0].split()
            self.assertEqual(by_hand, engine, norm)

    def test_every_norm_and_placement_has_its_page(self):
        listing = explain().stdout
        norms, placements = listing.split("placements (")
        for option, part in (("--norm", norms), ("--placement", placements)):
            names = [line.split()[0] for line in part.splitlines() if line.startswith("  ")]
            self.assertGreaterEqual(len(names), 7)
            for name in names:
                result = explain(option, name)
                self.assertEqual((result.returncode, result.stderr), (0, ""), name)
                self.assertTrue(result.stdout.startswith(name + ":"), name)

    def test_config(self):
        result = explain(os.path.join(CONFIGS, "deep_post.json"))
        self.assertIn("attn_norm(x + attention(x))", result.stdout)
        self.assertIn("logits = head(x)", result.stdout)  # post has no final norm
        mixed = explain(os.path.join(CONFIGS, "deep_pre.json"), "--set", "model.norm_placement=mix").stdout
        self.assertIn("blocks 1 to 3 (post)", mixed)
        self.assertIn("blocks 4 to 12 (pre)", mixed)

    def test_numbers_keep_their_digits(self):
        tiny = explain("--norm", "layernorm", "--vector", "1e-5,2e-5,3e-5").stdout
        self.assertIn("x = 1e-05  2e-05  3e-05", tiny)
        self.assertIn("σ = √σ²                                     = 8.164966e-06", tiny)
        for vector in ("0.1,0.2,0.3", "0.01,0.02,0.03", "1,100,0.001", "-1,0,1"):
            out = explain("--norm", "layernorm", "--vector", vector).stdout
            self.assertNotIn("-0.0000", out)
            self.assertIn("0.0000", out)

    def test_a_config_without_residuals_or_norms_has_equations_without_them(self):
        config = os.path.join(CONFIGS, "deep_pre.json")
        self.assertIn("    x = attention(attn_norm(x))\n", explain(config, "--set", "model.residual=false").stdout)
        self.assertIn("    x = x + ffn(x)\n", explain(config, "--set", "model.norm=none").stdout)

    def test_patterns_show_both_kinds_of_blocks(self):
        out = explain("--placement", "mix").stdout
        self.assertLess(out.index("x = attn_norm(x + attention(x))"), out.index("x = x + attention(attn_norm(x))"))
        self.assertLess(out.index("─[ F ]─(+)─[ N ]─ y"), out.index("─[ N ]─[ F ]─(+)─ y"))
        self.assertEqual(explain("--placement", "hybrid_star").stdout.count("theory: "), 2)

    def test_drawings_of_blocks_whose_sublayers_differ(self):
        self.assertIn("    x ─┬─[ attention ]─(+)─[ N ]─┬─[ ffn ]─(+)─ y\n"
                      "       └────────────────┘        └──────────┘\n", explain("--placement", "hybrid").stdout)

    def test_a_config_says_what_its_sublayers_have_beside_matrices(self):
        config = os.path.join(CONFIGS, "deep_pre.json")

        def of(*settings):
            return explain(config, *(word for setting in settings for word in ("--set", setting))).stdout

        self.assertIn("q, k, v = x·W_qkv, each RMS-normed by head\n", of("model.norm_placement=hybrid"))
        self.assertIn("x·W_qkv, q and k RMS-normed by head, q and k turned by position (RoPE)\n",
                      of("model.qk_norm=true", "model.position=rope"))
        inner = ["    attn.inner_norm before attention's W_out\n", "    ffn.inner_norm before the FFN's W_out\n"]
        self.assertIn("".join(inner), of("model.norm_placement=subln"))
        both = of('model.norm_placement={"attn": "deepnorm", "ffn": "subln"}')
        self.assertIn("    attention: α = 2.2134, init of v, attn.out times 0.3195\n    ffn: init of its matrices times 1.7827\n", both)
        self.assertEqual([words in both for words in inner], [False, True])
        self.assertIn("dropout 0.1 in training", of("model.dropout=0.1"))

    def test_a_config_says_its_constants_and_scales(self):
        def of(*settings):
            words = (word for setting in settings for word in ("--set", setting))
            return explain(os.path.join(CONFIGS, "deep_pre.json"), *words).stdout

        self.assertNotIn("α", of())
        self.assertIn("    x = ffn_norm(α·x + ffn(x))\n    α = 2.2134, init of v, attn.out, ffn times 0.3195\n",
                      of("model.norm_placement=deepnorm"))
        self.assertIn("    x = x + a·ffn(ffn_norm(x))\n    a = 0.5\n", of("model.branch_scale=0.5"))
        rezero = 'model.norm_placement={"attn": "rezero", "ffn": "pre"}'
        self.assertIn("    x = x + a·attention(x)\n    x = x + ffn(ffn_norm(x))\n    attention: a = 0 at the start, learned\n", of(rezero))
        self.assertIn("    attention: a = 0 at the start, learned\n    ffn: a = 0.5\n", of(rezero, "model.branch_scale=0.5"))

    def test_parameters_are_counted_with_the_vocabulary_of_the_text(self):
        config = os.path.join(CONFIGS, "deep_pre.json")
        self.assertIn("its text has 77 characters", explain(config).stdout)
        self.assertIn("in all                606,976", explain(config).stdout)
        self.assertIn("with 65 characters", explain(config, "--set", "data.path=none.txt").stdout)

    def test_a_setting_without_a_config_is_refused(self):
        for option in ((), ("--norm", "rmsnorm")):
            result = explain(*option, "--set", "model.norm_eps_outside=true")
            self.assertEqual((result.returncode, result.stderr), (2, "[explain] --set needs a CONFIG to change\n"))

    def test_options_that_would_be_ignored_are_refused(self):
        for arguments, message in ((["--all", "--norm", "rmsnorm"], "--all explains everything; leave out --norm"),
                                   (["--all", os.path.join(CONFIGS, "deep_pre.json")], "--all takes no CONFIG"),
                                   (["--matrix", "1,2;3,4", "--vector", "1,2"], "give --matrix or --vector, not both")):
            result = explain(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (2, "", f"[explain] {message}\n"))

    def test_mistakes_are_named(self):
        for arguments, meant in ((["--norm", "layrnorm"], "layernorm"), (["--placement", "sandwhich"], "sandwich"),
                                 (["--vector", "1,x"], "numbers with commas")):
            result = explain(*arguments)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
            self.assertIn(meant, result.stderr)


if __name__ == "__main__":
    unittest.main()
