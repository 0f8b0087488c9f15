// Measures an op's gradient against central differences, in double.
#pragma once

#include <string>

#include "helpers.h"
#include "op_samples.h"

namespace normscope::testing {

// How the op meets its inputs: as parameters, whose gradients already hold something that must be added to;
// or as values computed on the tape, whose gradient buffers start as garbage (NaN here) that must not be
// read.
enum class InputKind { parameters, values };

// A value on the tape that is x again.
inline Var<double> computed(Tape<double>& tape, const Var<double>& x) {
  const Var<double> y = tape.create(x.rows, x.cols);
  std::copy_n(x.data, x.size(), y.data);
  tape.record(y, [=](Tape<double>& t) { t.alias_gradient(y, x); });
  return y;
}

// The inputs of a sample as numbers, and one cotangent for its output.
class GradientCheck {
 public:
  explicit GradientCheck(const OpSample& sample) : sample_(sample) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const SampleInput& input = sample.inputs[i];
      const std::string purpose = sample.name + "." + input.name;
      inputs_.push_back(normals<double>(input.rows * input.cols, purpose, input.spread, input.mean));
    }
    tape_.reset(false);
    cotangent_ = normals<double>(apply(InputKind::parameters, nullptr).size(), sample.name);
  }

  // The gradients by the op's backward, one a input.
  std::vector<std::vector<double>> gradients(InputKind kind) {
    poison();
    std::vector<std::vector<double>> before, after;
    for (const auto& input : inputs_) before.push_back(normals<double>(std::ssize(input), "held before"));
    after = before;
    const Var<double> y = apply(kind, &after);
    tape_.backward_from(y, cotangent_.data());
    for (std::size_t i = 0; i < after.size(); ++i) {
      for (std::size_t j = 0; j < after[i].size(); ++j) after[i][j] -= before[i][j];
    }
    return after;
  }

  // The largest error of an element of any input's gradient g, relative to |g|: the least over several steps.
  double worst_error(InputKind kind) {
    const auto g = gradients(kind);
    double worst = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const double size = norm(g[i]);
      if (!all_finite(g[i]) || !(size > 0)) return std::numeric_limits<double>::infinity();
      for (std::size_t j = 0; j < g[i].size(); ++j) {
        double least = std::numeric_limits<double>::infinity();
        for (const double step : {1e-3, 1e-4, 1e-5})
          least = std::min(least, std::abs(central_difference(inputs_[i][j], step) - g[i][j]));  // drops a NaN
        worst = std::max(worst, least / size);
      }
    }
    return worst;
  }

 private:
  // Leaves NaN in the memory that the next step will use.
  void poison() {
    tape_.reset(false);
    const Var<double> all = tape_.create(1, 100000);
    std::fill_n(all.data, all.size(), std::numeric_limits<double>::quiet_NaN());
    tape_.reset();
  }

  // `gradients` null: values only.
  Var<double> apply(InputKind kind, std::vector<std::vector<double>>* gradients) {
    std::vector<Var<double>> vars;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const SampleInput& shape = sample_.inputs[i];
      double* gradient = gradients != nullptr ? (*gradients)[i].data() : nullptr;
      Var<double> var = tape_.parameter(inputs_[i].data(), gradient, shape.rows, shape.cols);
      if (kind == InputKind::values) var = computed(tape_, var);
      vars.push_back(var);
    }
    return sample_.apply(tape_, vars);
  }

  double function() {  // <cotangent, op(inputs)>
    tape_.reset(false);
    const Var<double> y = apply(InputKind::parameters, nullptr);
    double sum = 0;
    for (std::size_t i = 0; i < cotangent_.size(); ++i) sum += cotangent_[i] * y.data[i];
    return sum;
  }

  // (f(x + h) - f(x - h)) / 2h
  double central_difference(double& x, double h) {
    const double start = x;
    const auto at = [&](double moved) {
      x = moved;
      return function();
    };
    const double difference = (at(start + h) - at(start - h)) / (2 * h);
    x = start;
    return difference;
  }

  const OpSample& sample_;
  std::vector<std::vector<double>> inputs_;
  std::vector<double> cotangent_;
  Tape<double> tape_;
};

}  // namespace normscope::testing
