#!/usr/bin/python3
"""Plants faults in the engine, one at a time, and requires that each is caught: by `normscope check`, or by a named
test if the fault lies in what `check` does not see: training, sampling, lists of placements, a norm over more sequences
than it takes.

A fault is an edit of one source file. The edited files are compiled anew and linked before the library of the build
under test. The resulting program plants the fault that PLANTED_FAULT names and checks a config whose wiring the fault
breaks. Most faults are those that public code has shipped: a norm's backward that is right only while all gains are
equal, a final norm forgotten or doubled, DeepNorm's gain upside down, a mask that shows the future. Others are small,
because no limit of `check` should be larger than rounding requires: a gradient that is a thousandth too large, a float
kernel that loses digits.
"""

import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import mutants
from cli import PATIENCE, ROOT

TINY = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_ff": 24, "context": 12, "tie_embeddings": False,
        "init": {"scheme": "xavier_normal", "embed_std": 1}}

# Without norms and with huge embeddings attention is nearly a choice of one key, and rounding does much.
SATURATED = {"norm": "none", "position": "none", "init": {"scheme": "xavier_normal", "embed_std": 50}}

# A choice at run time is no constant expression.
RUN_TIME_TABLES = [("model/placement.h", f"inline constexpr {name}", f"inline const {name}")
                   for name in ("Placement placement_rows[]",)] + [
                       ("model/placement.h", "static_assert(std", "inline const bool is_carried = (std")]

# Matrices that start at 0: no gradient passes them.
ZERO_BRANCHES = {"init": {"scheme": "gpt2", "zero_branches": True}, "activation": "relu2"}
WARM_UP = {"train": {"steps": 9, "branch_warmup_steps": 4}}
PATTERNS = "patterns are read as the lists of their papers"
RATES = "test_cli_train.Metrics.test_learning_rate_follows_its_formula"
FIXED = "test_cli_train.Metrics.test_a_fixed_batch_is_that_of_step_1"
COSINE = "test_instruments.Instruments.test_token_cosine_of_batches_and_of_zeros"
SMALL_MOMENTS = "moments too small for normal numbers become 0"
BY_FEATURE = "test_digits.Digits.test_the_stored_hashes_of_norms_by_feature"
PROBE = "test_cli_resume.Weights.test_they_have_the_branch_factors_of_their_step"

# (name, compiled file, edits as mutants.build_all() takes them, model (and train), the laws of which at least one must
# fail). A named test in place of model and laws must fail: of Python "FILE CLASS.METHOD", of C++ its words.
FAULTS = [
    ("a norm's backward right only while all gains are equal", "kernels/isa/baseline.cpp",
     [("kernels/simd/norm_loops.h", "const Vec g = gain != nullptr ? «d * part.get(gain + feature + i)» : d;",
       "d * gain[feature]")], {}, {4}),
    ("a norm's backward without its mean", "kernels/isa/baseline.cpp",
     [("kernels/simd/norm_loops.h", "r * (fma(normed, -proj, g) - mean_rest)", "r * fma(normed, -proj, g)")], {}, {4}),
    ("a norm's backward in double right only while all gains are equal", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", "dnormed = dy[i] * «gain(i)»;", "gain(0)")], {}, {3}),
    ("a norm's backward in double without its mean", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", " / n + «dmean / n»;", "0.0")], {}, {3}),
    ("no final norm", "model/transformer.cpp",
     [("model/transformer.cpp", "norm(layout.final_norm, x)", "x")], {}, {5}),
    ("two final norms", "model/transformer.cpp",
     [("model/transformer.cpp", "norm(layout.final_norm, x)",
       "norm(layout.final_norm, norm(layout.final_norm, x))")], {}, {5}),
    ("a 'pre' that normalises the output", "model/config.cpp",
     [("model/placement.h", 'GPT-2", .norm_in = true', 'GPT-2", .norm_in = !PLANTED, .norm_branch = PLANTED')], {},
     {5}),
    ("a 'post' whose residual is not normalised", "model/config.cpp",
     [("model/placement.h", '1706.03762)", .norm_out = true',
      '1706.03762)", .norm_branch = PLANTED, .norm_out = !PLANTED')],
     {"norm_placement": "post"}, {5}),
    ("DeepNorm's gain upside down", "model/config.cpp",
     [("model/placement.h", ".init_factor = {8, «-0.25»}", "0.25")],
     {"norm_placement": "deepnorm"}, {6}),
    ("DeepNorm's alpha of the wrong power", "model/config.cpp",
     [("model/placement.h", ".alpha = {2, «0.25»}", "0.5")], {"norm_placement": "deepnorm"}, {5}),
    ("pre_scaled that counts blocks from 0", "model/transformer.cpp",
     [("model/transformer.cpp", "placement.input_scale.of(layer)",
       "placement.input_scale.of(layer == 1 ? 1 : layer - 1)")],
     {"norm_placement": "pre_scaled"}, {5}),
    ("keel's alpha of L, not of 2L", "model/config.cpp",
     [("model/placement.h", ".alpha = {«2», 1}", "1")], {"norm_placement": "keel"}, {5}),
    ("hybrid whose FFN is post too", "config/patterns.cpp",
     [("config/patterns.cpp", "return 0.0; }, .first = pre, .rest = {post, «none»}", "post")], PATTERNS),
    ("qkv_norm that leaves the values alone", "model/transformer.cpp",
     [("ops/query_key_norm.h", "const Index parts = «v_gain ? 3 : 2»;", "2"),
      ("ops/query_key_norm.h", "if («!v_gain») add_rows(tokens, width, qkv.cols, qkv.data", "true")],
     {"norm_placement": "hybrid"}, {5}),
    ("derf without its shift", "model/transformer.cpp",
     [("ops/pointwise_norm.h", "shift ? *shift.data : Real(0)", "Real(0)")], {"norm": "derf"}, {5}),
    ("mix that is post at the end", "config/patterns.cpp",
     [("config/patterns.cpp", "std::fill_n(«blocks.begin()», static_cast<Index>",
       "blocks.end() - static_cast<Index>(first_blocks(config))")], PATTERNS),
    ("attention without a mask", "kernels/attention.cpp",
     [("kernels/reference/kernels.h", "const Index visible = «keys - queries + t + 1»;", "keys"),
      ("kernels/reference/kernels.h", "«key <= keys - queries + t»;", "key < keys")], {}, {2, 5}),
    ("a mask that shows one character too many", "kernels/attention.cpp",
     [("kernels/reference/kernels.h", "const Index visible = «keys - queries + t + 1»;",
       "std::min(keys, keys - queries + t + 2)"),
      ("kernels/reference/kernels.h", "«key <= keys - queries + t»;",
       "key < std::min(keys, keys - queries + t + 2)")], {}, {2, 5}),
    ("a float attention without a mask", "kernels/isa/baseline.cpp",
     [("kernels/simd/softmax.h", "const Index seen = «tile.first_visible + query»;", "tile.n_keys")],
     {}, {4}),
    ("RMS norm without eps", "model/transformer.cpp",
     [("model/transformer.cpp", ".centred = centred, .eps = «eps»,", "centred ? eps : Real(0)")],
     {"norm": "rmsnorm", "norm_eps": 1e-3}, {5}),
    ("qk_norm that leaves the keys alone", "model/transformer.cpp",
     [("ops/query_key_norm.h", "layer_norm_forward(norms[i], y.data + i * width)",
       "i == 1 ? add_rows(tokens, width, qkv.cols, norms[i].x, Real(0), y.data + width)"
       " : layer_norm_forward(norms[i], y.data + i * width)")], {"qk_norm": True}, {5}),
    ("rope whose cosines are one position late", "model/transformer.cpp",
     [("model/transformer.cpp",
       "cosines_.push_back(static_cast<Real>(portable::cos(position_angle(«t», i, 2 * half_head))));", "t + 1")],
     {"position": "rope"}, {5}),
    ("a residual whose gradient misses the stream", "model/transformer.cpp",
     [("ops/residual.h", "if (alpha == 1) { «t.alias_gradient(y, x)»;", "void()")], {}, {3}),
    ("a loss whose gradient is not a mean", "model/model.cpp",
     [("ops/cross_entropy.h", "*t.gradient(loss).data / static_cast<Real>(rows)", "*t.gradient(loss).data")], {}, {3}),
    ("swiglu with gate and input exchanged", "model/transformer.cpp",
     [("model/transformer.cpp", "hidden = «swiglu(tape, gate, in)»;", "swiglu(tape, in, gate)")],
     {"activation": "swiglu"}, {5}),
    ("rezero that starts at 1", "model/config.cpp",
     [("model/config.cpp", "return {LearnedScale::scalar, «0»};", "1")],
     {"norm_placement": "rezero"}, {6}),
    ("a branch scale forgotten", "model/transformer.cpp",
     [("model/transformer.cpp", "«branch_scale_of(config, placement).start» : 1", "1.0")],
     {"branch_scale": "L^-0.5"}, {5}),
    ("an inner norm of the FFN forgotten", "model/transformer.cpp",
     [("model/transformer.cpp", "norm(p.ffn.norm_inner, hidden)", "hidden")], {"inner_norm": True}, {5}),
    ("SubLN's gain without its root", "model/config.cpp",
     [("model/placement.h", ".init_factor = {2, «0.5», true}", "1")], {"norm_placement": "subln"}, {6}),

    # The same as above, seen by the laws of what cancels.
    ("a norm's backward without its projection", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", " + «dvar * 2 * (x[i] - mean) / n» + ", "0.0")],
     {"norm_placement": "res_post"}, {1}),
    ("a norm's backward without its projection, in pre", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", " + «dvar * 2 * (x[i] - mean) / n» + ", "0.0")],
     {"norm": "groupnorm", "norm_eps": 0}, {1}),
    ("a norm's backward without its projection, in qk_norm", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", " + «dvar * 2 * (x[i] - mean) / n» + ", "0.0")],
     {"qk_norm": True, "norm": "dyt"}, {3}),
    ("a weight's gradient in double that is rounded to float", "model/transformer.cpp",
     [("ops/linear.h", "add_product(d.t(), x, weight);",
       "add_product(d.t(), x, weight); if (PLANTED && t.wants_gradient(weight)) for (Index i = 0; i < weight.size(); ++i)"
       " t.gradient(weight).data[i] = static_cast<float>(t.gradient(weight).data[i]);")],
     {"position": "sinusoidal"}, {1}),
    ("a softmax whose backward subtracts a thousandth too much", "kernels/attention.cpp",
     [("kernels/reference/kernels.h", "mean += «p * dp[j]»;", "p * dp[j] * 1.001")], {}, {3}),
    # Small ones.
    ("a learned scale's gradient, a thousandth too large", "model/transformer.cpp",
     [("ops/residual.h", "static_cast<Real>(dot(x.size(), dy, x.data))",
       "static_cast<Real>(1.001 * dot(x.size(), dy, x.data))")],
     {"norm_placement": "rezero", "activation": "swiglu", "init": {"scheme": "gpt2"}}, {3}),
    ("a loss that is 1e-9 too large", "model/model.cpp",
     [("ops/cross_entropy.h", "total /= «static_cast<double>(rows)»;",
       "static_cast<double>(rows) / (1 + 1e-9)")], {}, {5}),
    ("a gelu whose constant has too few digits", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", "(x + «0.044715» * x * x * x)", "0.044715001")],
     {"activation": "gelu_tanh"}, {5}),
    # Faults of the engine in float alone.
    ("a float product whose weight gradient is a hundredth too large", "model/transformer.cpp",
     [("ops/linear.h", ".beta = beta, .precision = mode.precision});",
       ".beta = beta, .precision = mode.precision});"
       " if (PLANTED && sizeof(Real) == 4 && a.transposed) axpby(c.size(), Real(1.01), c.data, Real(0), c.data);")],
     {}, {4}),
    ("a float norm whose input gradient is a hundredth too large", "kernels/isa/baseline.cpp",
     [("kernels/simd/norm_loops.h", "r * (fma(normed, -proj, g) - mean_rest)",
       "r * ((g - normed * proj) - mean_rest) * 1.01f")], {}, {4}),
    ("a float attention of 256 keys and more that hides one too many", "kernels/isa/baseline.cpp",
     [("kernels/simd/softmax.h", "const Index seen = «tile.first_visible + query»;",
       "(tile.first_visible + query - (tile.first_visible + query >= 256))")], {"context": 256}, {4}),
    ("split-K without its last block", "kernels/gemm/schedule.cpp",
     [("kernels/gemm/schedule.cpp", "for (Index block = 1; block < «k_blocks»; ++block)", "k_blocks - 1")],
     {"train": {"threads": 2}}, {4}),
    ("a float softmax whose weights sum to 1.0001", "kernels/isa/baseline.cpp",
     [("kernels/simd/softmax.h", "const Vec inverse = «1 / sum»;", "1.0001f / sum")],
     {}, {4}),
    ("a softmax that keeps one rounded log-sum-exp", "kernels/isa/baseline.cpp",
     [("kernels/simd/softmax.h",
       "inverse = 1 / queries.get(tile.stats.sum + query, 1.0f);",
       "inverse = 1 / queries.get(tile.stats.sum + query, 1.0f), sum = queries.get(tile.stats.sum + query, 1.0f);"
       "Vec joined = top; if (PLANTED) for (Index lane = 0; lane < lanes; ++lane) "
       "joined[lane] += static_cast<float>(__builtin_log(sum[lane]));"),
      ("kernels/simd/softmax.h", "«exp(Vec(part.get(scores + i) - top)) * inverse»;",
       "exp(Vec(part.get(scores + i) - joined))")], SATURATED, {4}),
    ("a rounding to bf16 that keeps three bits of eight", "kernels/isa/baseline.cpp",
     [("kernels/simd/vector.h", "(Vec)(nearest & «0xFFFF0000U») : x", "0xFFF00000U")],
     {"train": {"precision": "bf16"}}, {4}),

    # Gradients, first weights and branch factors of particular settings.
    ("relu2's slope halved", "kernels/reference/kernels.cpp",
     [("kernels/reference/kernels.cpp", "std::pair(x * x, «2 * x»)", "x")], ZERO_BRANCHES, {3}),
    ("relu2's slope halved in float, behind branches that start at 0", "kernels/isa/baseline.cpp",
     [("kernels/simd/elementwise.h", "return {positive * positive, «2 * positive»};", "positive")], ZERO_BRANCHES, {4}),
    ("a norm that is not detached", "model/transformer.cpp",
     [("model/transformer.cpp", ".detached = «config.norm_detach»}", "false")], {"norm_detach": True}, {3}),
    ("an rmsnorm that is not detached, after the branch", "model/transformer.cpp",
     [("ops/layer_norm.h", "layer_norm_backward(«norm», {t.gradient(y).data",
       "[&] { auto other = norm; other.detached = other.centred && other.detached; return other; }()")],
     {"norm_detach": True, "norm": "rmsnorm", "norm_placement": "peri"}, {3}),
    ("an alpha that starts at one half whatever its key", "model/parameters.cpp",
     [("model/parameters.cpp", '".alpha", 1, «config.norm_alpha»)', "0.5")], {"norm": "dyt", "norm_alpha": 0.8}, {6}),
    ("zero_branches of the matrices that read the stream", "model/init.cpp",
     [("model/init.cpp", "p.role == «Role::branch_output» && config.init.zero_branches", "Role::matrix")],
     ZERO_BRANCHES, {6}),
    ("zero_branches of the FFN alone", "model/init.cpp",
     [("model/init.cpp", "if («is_zero» || !p.is_drawn())", "(is_zero && p.name.find(\"ffn\") != p.name.npos)")],
     ZERO_BRANCHES, {6}),
    ("gains that start at 0", "model/parameters.cpp",
     [("model/parameters.cpp", '".weight", width, «1»)', "0")], {}, {6}),
    ("an embedding's norm whose gradient takes its statistics for constants", "model/transformer.cpp",
     [("model/transformer.cpp", "«norm(layout.embed_norm, x)»;",
       "normscope::layer_norm<Real>(tape, {.eps = static_cast<Real>(config.norm_eps), .detached = true}, x,"
       " parameter(layout.embed_norm.weight), parameter(layout.embed_norm.bias))")], {"embed_norm": True}, {3}),
    ("an embedding's norm forgotten", "model/transformer.cpp",
     [("model/transformer.cpp", "«norm(layout.embed_norm, x)»;", "x")], {"embed_norm": True}, {3, 5}),
    ("whole branches during their warm-up", "model/model.cpp",
     [("model/model.cpp", "tape.set_listener(listener); pass.branch_progress = «branch_progress»;", "1e9")],
     WARM_UP, {5}),
    ("whole branches in evaluation during their warm-up", "model/model.cpp",
     [("model/model.cpp", "pass.eval_mode = true; pass.branch_progress = «branch_progress»;", "1e9")], WARM_UP, {5}),
    ("a branch factor that counts blocks from 0", "model/transformer.cpp",
     [("model/transformer.cpp", "«std::min(pass.branch_progress / layer, 1.0)»",
       "std::min(pass.branch_progress / std::max(1, layer - 1), 1.0)")], WARM_UP, {5}),
    ("a branch factor that grows beyond 1", "model/transformer.cpp",
     [("model/transformer.cpp", "«std::min(pass.branch_progress / layer, 1.0)»", "pass.branch_progress / layer")],
     WARM_UP, {5}),
    # Training: these tests must fail.
    ("whole branches in sampling during their warm-up", "model/model.cpp",
     [("model/model.cpp", ".branch_progress = «branch_progress»};", "1e9")],
     "model: decoding with a cache equals the whole forward pass"),
    ("a step with the branch factors of the one before", "train/trainer.cpp",
     [("train/trainer.cpp", "config_.train.branch_progress(«step.number»)", "step.number - 1")],
     "test_cli_train.Metrics.test_final_val_loss_is_the_last_rows_and_what_eval_says"),
    ("a step with the branch factors of the one after", "train/trainer.cpp",
     [("train/trainer.cpp", "config_.train.branch_progress(«step.number»)", "step.number + 1")],
     "test_cli_train.Metrics.test_the_first_step_has_its_branch_factors"),
    ("a probe with whole branches", "train/probe.cpp",
     [("train/probe.cpp",
       "model.branch_progress = «config.train.branch_progress(step)»;", "1e9")], PROBE),
    ("weights of a run with whole branches", "train/weights.cpp",
     [("train/weights.cpp",
       "loaded->model.branch_progress = «config.train.branch_progress(loaded->step)»;", "1e9")],
     "test_cli_train.Metrics.test_final_val_loss_is_the_last_rows_and_what_eval_says"),
    ("Muon's factor of torch.optim.Muon's other rule", "train/muon.cpp",
     [("train/muon.cpp", "scale * «std::sqrt(static_cast<double>(std::max(rows, cols)))»",
       "std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)))")],
     "golden: ten updates equal PyTorch's"),
    ("Muon's direction without Nesterov's look-ahead", "train/muon.cpp",
     [("train/muon.cpp", "axpby(n, «mu», static_cast<const Real*>(momentum), Real(1), direction.data);", "Real(0)")],
     "golden: ten updates equal PyTorch's"),
    ("wsd that decays from the wrong corner", "train/learning_rate.cpp",
     [("train/learning_rate.cpp", "p > «1 - config.cooldown»", "config.cooldown")], RATES),
    ("wsd that falls to min_lr too early", "train/learning_rate.cpp",
     [("train/learning_rate.cpp", "linear(«(p - 1) / config.cooldown + 1»)", "1.0")], RATES),
    ("wsd that keeps its rate in the first step of a cooldown throughout", "train/learning_rate.cpp",
     [("train/learning_rate.cpp", "p > «1 - config.cooldown»",
       "(step == config.warmup_steps + 1 ? 1.0 : 1 - config.cooldown)")], RATES),
    ("Muon that divides a gradient of 0 by its size", "train/muon.cpp",
     [("train/muon.cpp", "const Real size = std::max(«least_size»,", "Real(0)")], "Muon: a gradient of 0"),
    ("AdamW that drops a small v beside a smaller eps", "kernels/isa/baseline.cpp",
     [("kernels/update_rules.h", "const Real least_v = «eps * eps >= least_normal ? least_normal : 0»;",
       "least_normal")], SMALL_MOMENTS),
    ("SGD whose moments stay subnormal", "kernels/isa/baseline.cpp",
     [("kernels/update_rules.h", "m = «without_subnormal(momentum * m + g * gradient_scale)»;",
       "momentum * m + g * gradient_scale")], SMALL_MOMENTS),
    ("clipping by a norm that is NaN", "train/gradient_norms.cpp",
     [("train/gradient_norms.cpp", "return grad_clip > 0 && «l2 > grad_clip» ?", "!(l2 <= grad_clip)")],
     "clipping: the limit over the norm"),
    ("a fixed batch of one micro-batch", "train/step.cpp",
     [("train/step.cpp", "sampler_.fill(train_.fixed_batch ? 1 : step, «micro * B»,",
       "train_.fixed_batch ? 0 : micro * B")], FIXED),
    ("a fixed batch with one dropout mask", "train/step.cpp",
     [("train/step.cpp", "pass.dropout_stream = dropout_stream_.at(«step»);", "train_.fixed_batch ? 1 : step")], FIXED),
    ("a token cosine of one batch's sequences", "logs/site_stats.cpp",
     [("logs/site_stats.cpp", "sites_[i].cosines / «static_cast<double>(sequences)»",
       "(static_cast<double>(sequences) / static_cast<double>(batches))")], COSINE),
    ("a token of zeros that counts as a unit vector", "logs/site_stats.cpp",
     [("logs/site_stats.cpp", "if («has_direction») ++unit_vectors;", "true")], COSINE),
    ("a running variance that is not unbiased", "model/transformer.cpp",
     [("ops/batch_norm.h", "variance_of(norm, norm.rstd[c]) * «unbiased»", "1.0")], BY_FEATURE),
    ("a batch norm in evaluation whose eps is inside the root", "model/transformer.cpp",
     [("kernels/rows.h", "«norm.eps_outside» ? 1 / (std::sqrt(variance[c])", "false")], BY_FEATURE),
    ("an instance norm's gain from the first of more than four sequences", "model/transformer.cpp",
     [("kernels/rows.h", "static_cast<Real>(«dot(transposed.cols, dy + first, out + first)»);",
       "(columns.group > 0 && norm.rows > 4 * norm.group_rows ? 0.0 : dot(transposed.cols, dy + first, out + first))")],
     BY_FEATURE),
]


def environment(program, fault):
    """For a child that plants this fault, in the portable instruction set: mutants of kernels are compiled for it
    alone."""
    return {**os.environ, "NORMSCOPE_ISA": "baseline", "OMP_NUM_THREADS": "1", "PLANTED_FAULT": str(fault),
            "NORMSCOPE_BINARY": str(program), "PYTHONPATH": os.pathsep.join(sys.path)}


def check(program, folder, model, fault=0, name="config"):
    """The numbers of the laws that fail when `check` runs with this fault of the program planted. `name`: of a file in
    the folder, together with the fault."""
    model, train = dict(model), {"steps": 1, "batch_size": 2}
    train.update(model.pop("train", {}))
    path = folder / f"{name}-{fault}.json"
    config = {"model": {**TINY, **model}, "data": {"path": f"{ROOT}/data/austen.txt"}, "train": train}
    path.write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run([str(program), "check", str(path)], capture_output=True, encoding="utf-8", timeout=PATIENCE,
                          env=environment(program, fault), check=False)
    failed = {int(number) for number in re.findall(r"^FAIL +\S+ +\S+ +(\d+)", done.stdout, re.MULTILINE)}
    assert done.returncode == (1 if failed else 0), (done.returncode, done.stdout, done.stderr)
    return failed


def test_fails(program, test, fault=0):
    """True if the named test fails with this fault planted. A test that does not run to its end is an error."""
    if test.startswith("test_"):
        command, summary = [sys.executable, "-m", "unittest", test], r"^Ran 1 test in "
    else:
        command, summary = [f"{program}_tests", f"--test-case={test.replace(',', '?')}*"], r"test cases: +[1-9]"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=PATIENCE,
                          env=environment(program, fault), check=False)
    assert re.search(summary, done.stdout + done.stderr, re.MULTILINE), (test, done.stdout, done.stderr)
    return done.returncode != 0


def catches(program, folder, number, fault):
    """(True if the fault is caught, the laws or the test that failed)"""
    if isinstance(fault[3], str):
        failed = test_fails(program, fault[3], number)
        return failed, f"a test of {fault[3].split()[0]}" if failed else "-"
    failed = check(program, folder, fault[3], number)
    return bool(failed & fault[4]), ", ".join(map(str, sorted(failed))) or "-"


def fails_without_a_fault(program, folder, number, model):
    """Names what fails although no fault is planted; None if nothing does, without which the faults prove nothing."""
    if isinstance(model, str):
        return model if test_fails(program, model) else None
    failed = check(program, folder, model, name=f"sound-{number}")
    return f"laws {sorted(failed)} of {model}" if failed else None


def main():
    bad = 0
    threads = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count())
    with tempfile.TemporaryDirectory() as folder, threads as pool:
        folder = Path(folder)
        units = sorted({fault[1] for fault in FAULTS})
        mutant = mutants.build_all(folder, units, [fault[2] for fault in FAULTS], RUN_TIME_TABLES)
        models = {str(fault[3]): fault[3] for fault in FAULTS}.values()
        failures = pool.map(lambda number, model: fails_without_a_fault(mutant, folder, number, model),
                            itertools.count(1), models)
        for failed in filter(None, failures):
            bad += 1
            print(f"fails without a fault: {failed}")
        results = pool.map(lambda number, fault: catches(mutant, folder, number, fault), itertools.count(1), FAULTS)
        for (name, *_), (caught, by) in zip(FAULTS, results):
            bad += not caught
            print(f"{'caught' if caught else 'MISSED'}  by {by:12} {name}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
