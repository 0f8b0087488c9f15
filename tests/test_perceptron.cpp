// The engine's first page: a perceptron of two layers learns whether points lie in a circle, with the tape
// and the ops alone.
#include <doctest/doctest.h>

#include "core/random.h"
#include "ops/ops.h"

using namespace normscope;

TEST_CASE("a perceptron learns a circle with the tape and the ops alone") {
  constexpr Index points = 256, hidden = 16;
  const RandomStream random(1, "perceptron");
  std::vector<double> x(2 * points);  // (points, 2), standard normal
  std::vector<std::int32_t> inside(points);
  for (Index i = 0; i < points; ++i) {
    for (const Index at : {2 * i, 2 * i + 1}) x[at] = random.normal(at);
    inside[i] = x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1] < 1.4;  // about half of them
  }

  struct Parameter {
    Index rows, cols;
    std::vector<double> value = {}, gradient = {};
  };
  Parameter w1{hidden, 2}, b1{1, hidden}, w2{2, hidden}, b2{1, 2};
  const std::array all{&w1, &b1, &w2, &b2};
  for (std::uint64_t n = 1000; Parameter * p : all) {  // weights small and random
    for (Index i = 0; i < p->rows * p->cols; ++i) p->value.push_back(0.5 * random.normal(n++));
  }

  Tape<double> tape;
  const auto step = [&](double rate) {  // one step of gradient descent; the loss before it
    tape.reset();
    const auto on_tape = [&](Parameter& p) {
      p.gradient.assign(p.value.size(), 0);
      return tape.parameter(p.value.data(), p.gradient.data(), p.rows, p.cols);
    };
    const auto gemm = GemmProvider::automatic;
    const Var<double> input = Tape<double>::constant(x.data(), points, 2);
    const Var<double> features =
        activated_linear(tape, gemm, ActivationKind::gelu, input, on_tape(w1), on_tape(b1));
    const Var<double> logits = linear(tape, gemm, features, on_tape(w2), on_tape(b2));
    const Var<double> loss = cross_entropy(tape, logits, std::span<const std::int32_t>(inside));
    tape.backward(loss);
    for (Parameter* p : all) {
      for (std::size_t i = 0; i < p->value.size(); ++i) p->value[i] -= rate * p->gradient[i];
    }
    return loss.value[0];
  };

  CHECK(step(1.0) > 0.5);  // about ln 2: it guesses
  for (int i = 0; i < 300; ++i) step(1.0);
  CHECK(step(0.0) < 0.1);
}
