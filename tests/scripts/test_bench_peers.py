#!/usr/bin/python3
"""The comparison with PyTorch: its table from made-up figures; where PyTorch is, that the peer trains the very model of
torch_model.py; in the long form, its quick form."""

import contextlib
import importlib.util
import io
import json
import os
import runpy
import subprocess
import sys
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
            form = tuple(json.loads(command[-1])[-2:]) if bench_peers.PEER in command else None
            calls.append(next((name for name in bench_peers.FORMS if bench_peers.FORMS[name] == form), "normscope"))
            if calls[-1] in failing:
                raise ScriptError("no compiler")
            return {"step_ms": float(len(calls)), "peak_mb": 1, "isa": "avx2"}

        failing = ["fused, compiled", "written out, compiled"]
        with mock.patch.object(bench_peers, "json_of", json_of), contextlib.redirect_stderr(io.StringIO()) as errors:
            ours, peers = bench_peers.measure(*bench_peers.SHAPES[0], "fp32", threads=1, rounds=2)
            sound = ["normscope", "fused", "written out"]
            self.assertEqual(calls, [*sound, *failing, *sound])
            self.assertEqual((ours["step_ms"], [*peers]), (3.5, ["fused", "written out"]))
            self.assertEqual(errors.getvalue(), "".join(
                f"[bench_peers] without PyTorch {form}: no compiler\n" for form in failing))
            failing = bench_peers.FORMS
            with self.assertRaisesRegex(ScriptError, "no compiler"):
                bench_peers.measure(*bench_peers.SHAPES[0], "fp32", threads=1, rounds=2)

    def test_thread_settings_of_the_shell_reach_neither_side(self):
        settings = {"OMP_WAIT_POLICY": "active", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "1",
                    "OPENBLAS_NUM_THREADS": "1"}
        with mock.patch.dict(os.environ, settings):
            names = runpy.run_path(SCRIPT)["ENVIRONMENT"]
        self.assertIn("PATH", names)
        self.assertTrue(bench_peers.PEER.is_file())
        self.assertFalse(settings.keys() & names.keys())


class Program(unittest.TestCase):
    def test_nonsense_is_refused(self):
        result = run_script(SCRIPT, "--shape", "5", cwd=ROOT)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, r"^\[bench_peers\] argument --shape: .*\n$")

    def test_a_process_that_is_killed_is_named(self):
        with self.assertRaisesRegex(ScriptError, "^sh failed with code -9$"):
            bench_peers.json_of("sh", "-c", "kill -9 $$")

    @unittest.skipUnless(LONG and HAS_TORCH, "the long form, with PyTorch")
    def test_a_tiny_shape(self):
        result = subprocess.run([sys.executable, SCRIPT, "--shape", "0", "--threads", "1", "--rounds", "1"], cwd=ROOT,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        _, shape, _, *rows = result.stdout.splitlines()
        self.assertEqual(shape, "L 2, H 2, C 32, T 16, B 4")
        self.assertEqual([row.split()[:1] for row in rows], [["fp32"], ["bf16"], []])
        for row in rows[:2]:
            ours, peer = map(int, row.split()[-2:])
            self.assertLess(ours, 40)  # the script's own memory, with which that begins, holds no PyTorch
            self.assertGreater(peer, 100)


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
        shape = bench_peers.SHAPES[0][0]
        *model, _ = shape
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"data": {"path": os.path.join(ROOT, "data", "austen.txt")}, "train": {"steps": 1}}, file)
            file.flush()
            settings = [f"{key}={value}" for key, value in zip(bench_peers.KEYS, shape)]
            config = mean_field.resolved(file.name, settings)["model"]
        weights = torch_peer.Peer(*model, False).state_dict()  # below, no gain of 1, no bias of 0
        moved = {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in weights.items()}
        twin = torch_model.Transformer(config, moved).double()
        tokens, targets = torch.randint(torch_peer.VOCABULARY, (2, 3, config["context"]))
        expected = torch_model.cross_entropy(twin(tokens), targets)
        expected.backward()
        for fused in (True, False):
            if fused and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
                continue
            with self.subTest(fused=fused):
                peer = torch_peer.Peer(*model, fused).double()
                peer.load_state_dict(twin.state_dict(), strict=True)
                loss = peer(tokens, targets)
                loss.backward()
                self.assertAlmostEqual(loss.item(), expected.item(), places=10)
                gradients = dict(peer.named_parameters())
                for name, parameter in twin.named_parameters():
                    self.assertGreater(parameter.grad.abs().max().item(), 0, name)
                    torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-8, atol=1e-10)

    def test_a_form_s_process_prints_its_figures_or_why_in_one_line(self):
        arguments = [*bench_peers.SHAPES[0], "fp32", 1, False]
        found = bench_peers.json_of(sys.executable, bench_peers.PEER, json.dumps([*arguments, False]))
        self.assertGreater(found["step_ms"], 0)
        self.assertGreater(found["peak_mb"], 100)
        with mock.patch.dict(bench_peers.ENVIRONMENT, PATH="/nonexistent", CXX="/nonexistent"):
            with self.assertRaisesRegex(ScriptError, r"^\w+: .* compiler|no attribute 'compile'$"):
                bench_peers.json_of(sys.executable, bench_peers.PEER, json.dumps([*arguments, True]))


if __name__ == "__main__":
    if not HAS_TORCH:
        print("PyTorch is not here: what needs it is skipped")
    unittest.main()
