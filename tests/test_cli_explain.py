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
        for norm in ("layernorm", "rmsnorm", "batchnorm", "instancenorm", "dyt"):
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

    def test_mistakes_are_named(self):
        for arguments, meant in ((["--norm", "layrnorm"], "layernorm"), (["--placement", "sandwhich"], "sandwich"),
                                 (["--vector", "1,x"], "numbers with commas")):
            result = explain(*arguments)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
            self.assertIn(meant, result.stderr)


if __name__ == "__main__":
    unittest.main()
