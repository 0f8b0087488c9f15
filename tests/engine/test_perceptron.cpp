// The engine's first page: a perceptron of two layers learns which points lie in a circle.
#include <doctest/doctest.h>

#include "core/random.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"

using namespace normscope;

TEST_CASE("a perceptron learns a circle with the tape and the ops alone") {
  constexpr Index points = 256, hidden = 16;
  const RandomStream random(1, "perceptron");
  std::vector<double> x(2 * points);         // (points, 2), standard normal
  std::vector<std::int32_t> inside(points);  // about half of them
  for (Index i = 0; i < 2 * points; ++i) x[i] = random.normal(i);
  for (Index i = 0; i < points; ++i) inside[i] = std::hypot(x[2 * i], x[2 * i + 1]) < 1.2;

  struct Parameter {
    Index rows, cols;
    std::vector<double> value = std::vector<double>(rows * cols), gradient = value;
  } w1{hidden, 2}, b1{1, hidden}, w2{2, hidden}, b2{1, 2};
  const std::array all{&w1, &b1, &w2, &b2};
  for (Index n = 2 * points; Parameter * p : all)
    for (double& w : p->value) w = 0.5 * random.normal(n++);

  Tape<double> tape;
  const auto step = [&](double rate) {  // of gradient descent; returns the loss before it
    tape.reset();
    const auto on_tape = [&](Parameter& p) {
      p.gradient.assign(p.value.size(), 0);  // backward adds to it
      return tape.parameter(p.value.data(), p.gradient.data(), p.rows, p.cols);
    };
    constexpr auto gemm = GemmProvider::automatic;
    const auto in = tape.constant(x.data(), points, 2);
    const auto features = linear(tape, gemm, in, on_tape(w1), on_tape(b1), Activation::gelu);
    const auto logits = linear(tape, gemm, features, on_tape(w2), on_tape(b2));
    const auto loss = cross_entropy(tape, logits, std::span<const std::int32_t>(inside));
    tape.backward(loss);
    for (Parameter* p : all)
      for (std::size_t i = 0; i < p->value.size(); ++i) p->value[i] -= rate * p->gradient[i];
    return loss.data[0];
  };
  const double first = step(1), untrained = std::log(2);
  for (int i = 0; i < 300; ++i) step(1);
  CHECK(first > 0.8 * untrained);
  CHECK(step(0) < 0.1);
}
