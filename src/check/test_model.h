// What the checks have in common: models, batches, and what rounding may do to a number.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "check/check.h"
#include "data/batches.h"
#include "kernels/pointwise.h"
#include "model/model.h"
#include "telemetry/site_copies.h"
#include "train/environment.h"

namespace normscope {

// Of the second reading in equations.cpp: the number of the group that element (row, c) of an (N, C) matrix
// is normalised with; the factor of a block's placement on its first weights.
Index norm_group(const ModelConfig& config, Index context, Index row, Index c, Index width);
double expected_init_gain(const ModelConfig& config, const Parameter& p, bool query_or_key);
double expected_branch_scale(const ModelConfig& config, Index block, const std::string& sublayer);

// Moves gains, biases and scales by N(0, 0.3): a gradient that is right only at gain 1 and bias 0 must not
// pass. Running statistics stay.
template <class Real>
void perturb_1d_params(const ParameterLayout& layout, std::uint64_t seed, ParameterBlock<Real>& parameters);

// A model, which these passes never train: its dropout is off. Its matrices are of Xavier's scale whatever
// the config's own, since a law holds for any weights: with tiny or huge ones a fault could hide behind
// rounding. Vectors are moved.
template <class Real>
class TestModel : public Model<Real> {
 public:
  TestModel(const Context& given, const ModelConfig& model);

  // The loss, and `gradients` of this batch alone.
  double pass(const Pass& batch, std::vector<Real>* logits = nullptr) {
    this->gradients.clear();
    return this->loss_and_gradients(batch, 1, nullptr, logits);
  }
};

// The first `sequences` sequences of the run's first batch, each cut to `context` characters.
struct TestBatch {
  TestBatch(const Context& given, Index sequences, Index context);
  Pass view() const { return {tokens, targets, context}; }

  std::vector<Token> tokens, targets;
  Index context;
};

// A batch small enough that a pass takes so many operations: two sequences (more where they are short: batch
// norm over two tokens would be degenerate), or one of a large model, cut where even that is too much.
TestBatch small_batch(const Context& given, double max_flops = 2e8);

// <g, d> against (loss(W + h d) - loss(W - h d)) / 2h, for each parameter W with claimed gradient g along a d
// of length 1 that is half g's own and half random (which alone sees only 1/sqrt(size) of an error in g). The
// limit is 1e-6 |g| at any h or, where none reaches that, what rounding and curvature leave at the best one.
Result finite_difference_error(Model<double>& model, const Pass& batch,
                               const ParameterBlock<double>& gradients);

// (f(x + h d) - f(x - h d)) / 2h, where f reads the numbers at x. They end as they began.
template <class F>
double central_difference(double* x, const std::vector<double>& d, double h, F&& f) {
  const std::vector<double> start(x, x + d.size());
  double sides[2];
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < d.size(); ++i) x[i] = start[i] + (side == 0 ? -h : h) * d[i];
    sides[side] = f();
  }
  std::copy(start.begin(), start.end(), x);
  return (sides[1] - sides[0]) / (2 * h);
}

inline double l2_norm(Index n, const double* x) { return std::sqrt(dot(n, x, x)); }
double l2_distance(Index n, const double* a, const double* b);

// Everything that a pass computes.
struct Tensor {
  enum Kind { loss, value, site_gradient, matrix_gradient, vector_gradient } kind;
  std::string name;
  std::vector<double> data;
  double rounding = 0;  // what find_rounding() found

  double size() const { return l2_norm(std::ssize(data), data.data()); }
  double distance(const Tensor& other) const;
};
template <class Real>
std::vector<Tensor> tensors_of(Model<Real>& model, const Pass& batch);
const Tensor& tensor_named(const std::vector<Tensor>& all, const std::string& name);
std::string site_name(Place place);  // of a site's value

// --- what rounding may do ---------------------------------------------------------------------------------
//
// What it does at the end of a pass depends on the weights. So the pass is repeated a few times with every
// number on the tape moved by a random share of it (Tape::set_noise). To first order rounding moves the end
// by as much, times its own size over that of the noise. Few passes may show several times too little; hence
// the margin.
constexpr double rounding_margin = 8;

// What doubles are moved by: 2^13 times their rounding. So no law is a close call, and a fault is still seen
// that moves a well-conditioned number by 1e-11.
constexpr double noise_of_double = 0x1p-40;

// Where rounding may move a number by so much of its size, nothing can be said of it: where gradients cancel,
// as that of a bias before batch norm, or where weights make chaos.
constexpr double max_rounding = 0.5;

// By how much the noise moves each tensor of a pass of the model. Weights are moved too.
void find_rounding(Model<double>& model, const Pass& batch, double noise, std::vector<Tensor>& pass);

// Of several errors the one that is largest beside its limit; NaN is larger than any.
class Worst {
 public:
  // All relative to `scale`, if there is one. What is lost in rounding and within its limit is passed over.
  void add(const std::string& place, double error, double limit, double scale = INFINITY);

  // Its limit is infinite where all were passed over.
  Result result(std::string law) const { return {std::move(law), error_, limit_, place_}; }

 private:
  double error_ = 0, limit_ = INFINITY, ratio_ = -1;
  std::string place_;
};

// A number that a law says is 0, and how large it would be if nothing cancelled.
struct Residue {
  std::string place;
  double value, scale;

  void add(double term) {
    value += term;
    scale += std::abs(term);
  }
};

// The finding that all numbers are 0 that `measure` returns of a pass on this tape.
Result vanishes(std::string law, Tape<double>& tape, const std::function<std::vector<Residue>()>& measure);

}  // namespace normscope
