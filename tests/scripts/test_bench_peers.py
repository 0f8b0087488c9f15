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
from lib.base.command import ScriptError

SCRIPT = os.path.join(ROOT, "scripts", "bench_peers.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None


class Table(unittest.TestCase):
    def test_a_row_compares_with_the_fastest_form_and_the_smallest_process(self):
        peers = {form: {"step_ms": step_ms, "peak_mb": peak_mb} for form, step_ms, peak_mb in zip(
            bench_peers.FORMS, (1500.0, 1600.0, 1250.0, 1300.0), (500, 510, 1600, 1610))}
        ours = {"step_ms": 500.0, "peak_mb": 240}
        row = bench_peers.row("fp32", 2, ours, peers)
        self.assertEqual(row, ["fp32", "2", "500.00", "1500.00", "1600.00", "1250.00", "1300.00", "2.50", "240", "500"])
        self.assertEqual(len(row), len(bench_peers.HEADER))
        self.assertEqual(bench_peers.row("bf16", 2, ours, {"written out": peers["fused"]}),
                         ["bf16", "2", "500.00", "", "1500.00", "", "", "3.00", "240", "500"])

    def test_sides_take_turns_and_a_form_that_fails_is_left_out(self):
        calls = []

        def json_of(*command):
            calls.append(next((form for form, options in bench_peers.FORMS.items()
                               if list(command[-len(options):]) == options), "normscope"))
            if calls[-1] in failing:
                raise ScriptError("no compiler")
            return {"step_ms": float(len(calls)), "peak_mb": 1, "isa": "avx2"}

        failing = ["fused, compiled", "written out, compiled"]
        with mock.patch.object(bench_peers, "json_of", json_of), contextlib.redirect_stderr(io.StringIO()) as errors:
            ours, peers = bench_peers.measure(bench_peers.QUICK[0], "fp32", 1, 2, "python")
            sound = ["normscope", "fused", "written out"]
            self.assertEqual(calls, [*sound, *failing, *sound])
            self.assertEqual((ours["step_ms"], [*peers]), (3.5, ["fused", "written out"]))
            self.assertEqual(errors.getvalue(), "".join(
                f"[bench_peers] without PyTorch {form}: no compiler\n" for form in failing))
            failing = bench_peers.FORMS
            with self.assertRaisesRegex(ScriptError, "no compiler"):
                bench_peers.measure(bench_peers.QUICK[0], "fp32", 1, 2, "python")

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
        _, shape, _, *rows = result.stdout.splitlines()
        self.assertEqual(shape, "L 2, H 2, C 32, T 16, B 4")
        self.assertEqual([row.split()[:1] for row in rows], [["fp32"], ["bf16"], []])


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
                json.dump(bench_peers.config_of(bench_peers.QUICK[0], "fp32") | {"data": data}, file)
                file.flush()
                settings = ("train.steps=1", f"model.tie_embeddings={json.dumps(tied)}")
                config = mean_field.resolved(file.name, settings)["model"]
            weights = torch_peer.Peer(config, 65, False).state_dict()  # below, no gain of 1, no bias of 0
            moved = {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in weights.items()}
            twin = torch_model.Transformer(config, moved).double()
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
