// Checks that the model of a config is wired as the config says.
//
// Each law holds for any weights: an exact identity of the gradients, an equation written out again in plain
// loops, a comparison with central differences or with double. A fault in the wiring breaks at least one of
// them, as tests/test_check_teeth.py shows by planting faults.
#pragma once

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/batches.h"
#include "data/corpus.h"
#include "kernels/pointwise.h"
#include "logs/sites.h"
#include "model/model.h"

namespace normscope {

// The result of a law for a config. `error` is relative unless the law says otherwise.
struct Result {
  std::string law;                               // with the variant of the config, if it is one
  double error;                                  // as measured
  double limit;                                  // fixed: what rounding explains in sound configs
  std::string note;                              // where the error is largest; what leaks
  bool holds() const { return error <= limit; }  // NaN does not
};

// The results of a check, or why it does not apply.
struct Outcome {
  std::vector<Result> results = {};
  std::string does_not_apply = {};
};

struct Context {
  const RunConfig& config;
  const Corpus& corpus;
};

struct Check {
  const char* name;
  Outcome (*measure)(const Context& given);
};
std::span<const Check> checks();  // in the order of the report, which numbers them from 1

// --- shared by the checks ---------------------------------------------------------------------------------

using Numbers = std::vector<double>;

// The limit of what is exact but for rounding in double, relative to a size without cancellation.
constexpr double identity_limit = 1e-10;

// Adds N(0, 0.3) to gains, biases and scales: a gradient that is right only at gain 1 and bias 0 must not
// pass.
template <class Real>
void perturb_1d_params(const ParameterLayout& layout, std::uint64_t seed, ParameterBlock<Real>& parameters) {
  for (const Parameter& p : layout.list()) {
    const RandomStream stream(seed, "moved " + p.name);
    for (Index i = 0; i < p.size && !p.is_matrix(); ++i)
      parameters.at(p)[i] += static_cast<Real>(0.3 * stream.normal(i));
  }
}

// A model without dropout. Its matrices have Xavier's scale whatever the config's init, since a law holds for
// any weights, and with tiny or huge ones a fault could hide behind rounding. Its vectors are perturbed.
template <class Real>
struct TestModel : Model<Real> {
  TestModel(const Context& given, ModelConfig model)
      : Model<Real>(model, given.corpus.vocab.size(), given.config.train.gemm_mode()) {
    model.init = {.scheme = InitScheme::xavier_uniform, .embed_std = 0.5, .residual_scaling = true};
    initialise(model, this->layout(), given.config.train.seed, this->parameters);
    perturb_1d_params(this->layout(), given.config.train.seed, this->parameters);
  }
};

// Two sequences of the training text, cut to max_context characters; more if they are shorter than 8, since
// batch norm over two tokens would be degenerate.
WindowBatch small_batch(const Context& given, Index max_context);
inline Pass view(const WindowBatch& batch) { return {batch.tokens, batch.targets, batch.context}; }

// Compares <g, d> with (loss(W + h d) - loss(W - h d)) / 2h for each parameter W with gradient g, d being
// half g's direction, half random (which alone shows only 1/sqrt(size) of an error in g). The limit is 1e-6
// |g| at the best of a few h. Where no two h agree, the loss is too rough for a verdict.
Outcome compare_with_differences(Model<double>& model, const Pass& batch,
                                 const ParameterBlock<double>& gradients);

inline double l2_norm(Index n, const double* x) { return std::sqrt(dot(n, x, x)); }
double l2_distance(const Numbers& a, const Numbers& b);

// What a training pass computes, by name: loss, act.<layer>.<site>, act_grad.<layer>.<site>,
// grad.<parameter>.
using Tensors = std::map<std::string, Numbers>;
template <class Real>
Tensors tensors_of(Model<Real>& model, const Pass& batch, SiteCopies<Real>&& sites = {});

// The outcome, unless a result is NaN because a norm without eps divides 0 by 0, as where ReLUs leave zeros,
// or because relu2 or swiglu overflows without norms.
Outcome unless_nan(const Context& given, const Outcome& outcome);

// The largest of some errors, each relative to a scale; NaN counts as the largest.
class Worst {
 public:
  void add(const std::string& place, double error, double scale) {
    const double relative = error == 0 ? 0 : error / scale;
    if (std::isnan(error_) || relative <= error_) return;
    error_ = relative;
    place_ = place;
  }
  bool empty() const { return error_ < 0; }
  Result result(std::string law, double limit) const { return {std::move(law), error_, limit, place_}; }

 private:
  double error_ = -1;
  std::string place_;
};

}  // namespace normscope
