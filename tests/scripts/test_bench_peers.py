#!/usr/bin/python3
"""The comparison with PyTorch: its table from made-up figures; where PyTorch is, that the peer trains the very model of
torch_model.py; in the long form, its quick form."""

import contextlib
import importlib.util
import io
import json
import os
import runpy
import tempfile
import unittest
from unittest import mock

from cli import LONG, ROOT, run_script

import bench_peers  # in scripts, which cli.py puts on the path

SCRIPT = os.path.join(ROOT, "scripts", "bench_peers.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None


class Table(unittest.TestCase):
    def test_a_line_compares_with_the_faster_form_and_the_smaller_process(self):
        sides = {"normscope": {"step_ms": 500.0, "peak_mb": 240}, "eager": {"step_ms": 1500.0, "peak_mb": 500},
                 "compiled": {"step_ms": 1250.0, "peak_mb": 1600}}
        row = bench_peers.line("fp32", 2, sides)
        self.assertEqual(row.split(), ["fp32", "2", "500.00", "1500.00", "1250.00", "2.50", "240,", "500"])
        self.assertEqual(len(row), len(bench_peers.HEADER))
        del sides["compiled"]
        self.assertEqual(bench_peers.line("bf16", 2, sides).split(),
                         ["bf16", "2", "500.00", "1500.00", "-", "3.00", "240,", "500"])

    def test_sides_take_turns_and_compile_that_fails_is_left_out(self):
        calls = []

        def json_of(*command):
            side = "normscope" if "bench" in command else "compiled" if "--compile" in command else "eager"
            calls.append((side, command[command.index("--attention") + 1] if side != "normscope" else ""))
            if side == "compiled":
                raise bench_peers.Failure("no compiler")
            written_out = calls[-1][1] == "written_out"
            return {"step_ms": 1.0 if written_out else 2.0, "peak_mb": 1}

        with mock.patch.object(bench_peers, "json_of", json_of), contextlib.redirect_stderr(io.StringIO()) as errors:
            sides = bench_peers.measure(bench_peers.QUICK[0], "fp32", 1, 2, "python")
        self.assertEqual(calls, [("eager", "fused"), ("eager", "written_out"), ("normscope", ""),
                                 ("eager", "written_out"),
                                 ("compiled", "written_out"), ("normscope", ""), ("eager", "written_out")])
        self.assertEqual(list(sides), ["normscope", "eager"])
        self.assertEqual(errors.getvalue(), "[bench_peers] eager alone is measured: no compiler\n")

    def test_thread_settings_of_the_shell_reach_neither_side(self):
        settings = {"OMP_WAIT_POLICY": "active", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "1",
                    "OPENBLAS_NUM_THREADS": "1"}
        with mock.patch.dict(os.environ, settings):
            names = runpy.run_path(SCRIPT)["ENVIRONMENT"]
        self.assertIn("PATH", names)
        self.assertTrue(bench_peers.PEER.is_file())
        self.assertFalse(settings.keys() & names.keys())


class Program(unittest.TestCase):
    def test_without_torch_or_with_nonsense_it_says_so(self):
        for arguments, says in ((("--python", "/bin/false"), "/bin/false has no PyTorch; install it"),
                                (("--shape", "5"), "--shape")):
            result = run_script(SCRIPT, *arguments, cwd=ROOT)
            with self.subTest(arguments):
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr.splitlines()[-1])
                self.assertEqual(result.stdout, "")

    @unittest.skipUnless(LONG and HAS_TORCH, "the long form, with PyTorch")
    def test_quick_form(self):
        result = run_script(SCRIPT, "--quick", "--threads", "1", "--rounds", "1", cwd=ROOT)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual((lines[1], lines[2]), (bench_peers.HEADER, "L 2, H 2, C 32, T 16, B 4"))
        self.assertEqual([row.split()[0] for row in lines[3:]], ["fp32", "bf16"])


@unittest.skipUnless(HAS_TORCH, "no PyTorch")
class Peer(unittest.TestCase):
    """The peer computes what torch_model.py does, which the engine is checked against."""

    def test_loss_and_gradients_are_those_of_the_twin(self):
        import torch
        import torch_model
        from lib.model import torch_peer
        from lib.theory import mean_field
        torch.manual_seed(1)
        torch.set_num_threads(1)
        for tied in (True, False):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                data = {"path": os.path.join(ROOT, "data", "austen.txt")}
                json.dump(bench_peers.QUICK[0].config("fp32") | {"data": data}, file)
                file.flush()
                settings = ("train.steps=1", f"model.tie_embeddings={json.dumps(tied)}")
                config = mean_field.resolved(file.name, settings)["model"]
            weights = torch_peer.Peer(config, 65).state_dict()  # below, no gain of 1, no bias of 0
            twin = torch_model.Transformer(config, {n: t + 0.1 * torch.randn_like(t) for n, t in weights.items()}).double()
            tokens, targets = torch.randint(65, (2, 3, config["context"]))
            expected = torch_model.cross_entropy(twin(tokens), targets)
            expected.backward()
            for fused in (True, False):
                if fused and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
                    continue
                with self.subTest(tied=tied, fused=fused):
                    peer = torch_peer.Peer(config, 65, fused).double()
                    peer.load_state_dict(twin.state_dict(), strict=True)
                    loss = peer(tokens, targets)
                    loss.backward()
                    self.assertAlmostEqual(loss.item(), expected.item(), places=10)
                    gradients = dict(peer.named_parameters())
                    for name, parameter in twin.named_parameters():
                        self.assertGreater(parameter.grad.abs().max().item(), 0, name)
                        torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-8, atol=1e-10)


if __name__ == "__main__":
    if not HAS_TORCH:
        print("PyTorch is not here: what needs it is skipped")
    unittest.main()
