// Shared by the checks: models, batches, tensors, errors beside their limits.
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

// The second implementation in equations.cpp: the number of the group that element (row, c) of an (N, C)
// matrix is normalised with; a placement's factor on the initial weights; the factor of a branch.
Index norm_group(const ModelConfig& config, Index context, Index row, Index c, Index width);
double expected_init_gain(const ModelConfig& config, const Parameter& p, bool query_or_key);
double expected_branch_scale(const ModelConfig& config, Index block, const std::string& sublayer);

// Adds N(0, 0.3) to gains, biases and scales: a gradient that is right only at gain 1 and bias 0 must not
// pass.
template <class Real>
void perturb_1d_params(const ParameterLayout& layout, std::uint64_t seed, ParameterBlock<Real>& parameters) {
  for (const Parameter& p : layout.list()) {
    if (p.is_matrix()) continue;
    const RandomStream stream(seed, "moved " + p.name);
    for (Index i = 0; i < p.size; ++i) parameters.at(p)[i] += static_cast<Real>(0.3 * stream.normal(i));
  }
}

// A model without dropout. Its matrices have Xavier's scale whatever the config's init, since a law holds for
// any weights, and with tiny or huge ones a fault could hide behind rounding. Its vectors are perturbed.
template <class Real>
class TestModel : public Model<Real> {
 public:
  TestModel(const Context& given, ModelConfig model)
      : Model<Real>(model, given.corpus.vocab.size(), given.config.train.gemm_mode()) {
    model.init = {.scheme = InitScheme::xavier_uniform, .embed_std = 0.5, .residual_scaling = true};
    initialise(model, this->layout(), given.config.train.seed, this->parameters);
    perturb_1d_params(this->layout(), given.config.train.seed, this->parameters);
  }

  // The loss, and `gradients` of this batch alone.
  double pass(const Pass& batch, std::vector<Real>* logits = nullptr) {
    this->gradients.clear();
    return this->loss_and_gradients(batch, 1, nullptr, logits);
  }
  // Sets every number of a parameter, if the model has it.
  void set(int parameter, Real value) {
    if (parameter == no_parameter) return;
    const Parameter& p = this->layout()[parameter];
    std::fill_n(this->parameters.at(p), p.size, value);
  }
};

// The first `sequences` sequences of the run's first batch, each cut to `context` characters.
struct TestBatch {
  TestBatch(const Context& given, Index sequences, Index context);
  Pass view() const { return {tokens, targets, context}; }

  std::vector<Token> tokens, targets;
  Index context;
};

// A batch whose pass takes about max_flops at most: two sequences (more if they are short, since batch norm
// over two tokens would be degenerate), or for a large model one, shortened if necessary.
TestBatch small_batch(const Context& given, double max_flops = 2e8);

// Compares <g, d> with (loss(W + h d) - loss(W - h d)) / 2h for each parameter W with gradient g. d has
// length 1 and is half g's direction, half random (which alone shows only 1/sqrt(size) of an error in g). The
// limit is 1e-6 |g| at the best of a few h. Where no two h give the same, the loss is too rough for a
// verdict.
Result finite_difference_error(Model<double>& model, const Pass& batch,
                               const ParameterBlock<double>& gradients);

// (f(x + h d) - f(x - h d)) / 2h, where f reads the numbers at x, which are restored.
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

// A tensor that a pass computes.
struct Tensor {
  enum Kind { loss, value, site_gradient, matrix_gradient, vector_gradient } kind;
  std::string name;
  std::vector<double> data;

  double size() const { return l2_norm(std::ssize(data), data.data()); }
  double distance(const Tensor& other) const;
};
template <class Real>
std::vector<Tensor> tensors_of(Model<Real>& model, const Pass& batch);
// The sizes beside which errors of these tensors count. Of gradients at least a share of the largest: smaller
// ones may be nothing but rounding.
std::vector<double> scales_of(const std::vector<Tensor>& pass);

// A tensor (of kinds up to `last`) of a pass that moves by more than `limit` of its scale when all weights
// move by up to `rounding` of theirs, and by how much; empty if there is none. With such weights, which are
// chaotic, a law of numbers that were rounded says nothing. The weights stay moved.
std::string chaotic_tensor(Model<double>& model, const Pass& batch, double rounding, double limit,
                           Tensor::Kind last = Tensor::vector_gradient);

const Tensor& tensor_named(const std::vector<Tensor>& all, const std::string& name);
std::string site_name(Place place);  // of a site's value

// The error with the largest ratio to its limit; NaN counts as the largest.
class Worst {
 public:
  // Both are shown relative to `scale`.
  void add(const std::string& place, double error, double limit, double scale = 1);
  Result result(std::string law) const { return {std::move(law), error_, limit_, place_}; }

 private:
  double error_ = 0, limit_ = INFINITY, ratio_ = -1;  // infinite if nothing was added
  std::string place_;
};

// A sum that is 0 by a law, and its size without cancellation.
struct Residue {
  std::string place;
  double value, scale;

  void add(double term) {
    value += term;
    scale += std::abs(term);
  }
};

// The limit of what is exact but for rounding in double, relative to a size without cancellation.
constexpr double identity_limit = 1e-10;

// The result of the law that all residues are 0, beside their scales or, if larger, `least_scale`: the terms
// of a residue may themselves be nothing but rounding.
Result vanishes(std::string law, const std::vector<Residue>& found, double least_scale = 0);

}  // namespace normscope
