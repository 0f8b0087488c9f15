// Every op's gradient against central differences; wrong backwards that must be caught; the tape's memory.
#include "gradient_check.h"
#include "kernels/pointwise.h"
#include "ops/residual.h"
#include "ops/swiglu.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// Overwrites the gradient instead of adding to it.
Var<double> scale_overwriting(Tape<double>& tape, Inputs in) {
  const Var<double> x = in[0];
  Var<double> y = scale(tape, 0.6, x);  // its own backward would be right
  Var<double> z = tape.create(x.rows, x.cols);
  std::copy_n(y.data, y.size(), z.data);
  tape.record(z, [=](Tape<double>& t) {
    double* dx = t.accumulate(x).data;
    for (Index i = 0; i < x.size(); ++i) dx[i] = 0.6 * t.gradient(z).data[i];
  });
  return z;
}

// Adds to a gradient that it should have begun: right for a parameter, garbage for a fresh buffer.
Var<double> scale_adding_to_garbage(Tape<double>& tape, Inputs in) {
  const Var<double> x = in[0];
  Var<double> y = tape.create(x.rows, x.cols);
  axpby(x.size(), 0.6, x.data, 0.0, y.data);
  tape.record(y,
              [=](Tape<double>& t) { axpby(x.size(), 0.6, t.gradient(y).data, 1.0, t.accumulate(x).data); });
  return y;
}

}  // namespace

TEST_CASE("ops: every sample's gradient equals central differences") {
  CHECK(op_samples().size() >= 30);
  for (const OpSample& sample : op_samples()) {
    GradientCheck check(sample);
    for (const InputKind kind : {InputKind::parameters, InputKind::values}) {
      const double error = check.worst_error(kind);
      CAPTURE(sample.name);
      CAPTURE(static_cast<int>(kind));
      CHECK(error <= 1e-7);
    }
  }
}

TEST_CASE("ops: wrong backwards are caught") {
  const OpSample overwriting{"overwriting", {{"x", 8, 6}}, scale_overwriting};
  CHECK(GradientCheck(overwriting).worst_error(InputKind::parameters) > 1e-2);
  const OpSample garbage{"garbage", {{"x", 8, 6}}, scale_adding_to_garbage};
  CHECK(GradientCheck(garbage).worst_error(InputKind::parameters) <= 1e-7);
  CHECK_FALSE(GradientCheck(garbage).worst_error(InputKind::values) <= 1e-7);
}

TEST_CASE("tape: nothing is allocated after the first step") {
  Tape<float> tape;
  std::vector<float> x = normals<float>(300 * 1000, "x"), gradient(x.size());
  int after_first = 0;
  for (int step = 0; step < 6; ++step) {
    tape.reset();
    Var<float> v = tape.parameter(x.data(), gradient.data(), 300, 1000);
    for (int layer = 0; layer < 6; ++layer) {
      v = residual_sum(tape, 1.0f, v, swiglu(tape, v, v));
    }
    std::vector<float> cotangent(x.size(), 1.0f);
    tape.backward_from(v, cotangent.data());
    if (step == 0) after_first = tape.arena().chunks_allocated();
  }
  CHECK(after_first > 1);  // it took several chunks
  CHECK(tape.arena().chunks_allocated() == after_first);
  // 6 layers of 2 values, and 4 gradients alive at a time: buffers are used again.
  CHECK(tape.arena().peak_bytes() < 17 * x.size() * sizeof(float));
}
