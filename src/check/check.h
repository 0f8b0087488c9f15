// Checks that the model of a config is wired as the config says.
//
// Each law is an exact identity of the gradients or of logits, an equation written out again in plain loops,
// or a comparison with derivatives of these equations or with double. Width, heads and depth are the
// config's; batches are small, of at most 32 characters a sequence (laws 1 and 5), 96 (2), 8 (3) or the
// config's context (4). All but the last hold for any weights: the law of precision is tried on the config's
// first weights with their gains moved, the others on weights drawn by Xavier's rule; the last is about the
// first weights themselves. Limits are constants. A law that does not apply to a config, or says "chaotic",
// is no failure. A fault in the wiring of one model breaks at least one law, as
// tests/program/test_check_teeth.py shows by planting faults; lists of placements are read elsewhere.
//
// To add a law: a function in identities.cpp, laws.cpp or equations.cpp, its declaration and a row of checks() in
// check.cpp, before the first weights' (documents cite laws by number), and planted faults in that test.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/batches.h"
#include "data/corpus.h"
#include "kernels/pointwise.h"
#include "logs/site_stats.h"
#include "model/model.h"

namespace normscope {

// The result of a law for a config. `error` is relative unless the law says otherwise.
struct Result {
  std::string law;                               // names the variant of the config that was tested, if any
  double error;                                  // as measured
  double limit;                                  // fixed: the most that rounding explains in a sound config
  std::string note;                              // names the place of the largest error, or the leak
  bool holds() const { return error <= limit; }  // false if the error is NaN
};

// The results of a check, or why it does not apply.
struct Outcome {
  std::vector<Result> results = {};
  std::string does_not_apply = {};
};

// A check's input: the config whose wiring is verified, and a text for its batch.
struct CheckInput {
  const RunConfig& config;
  const Corpus& corpus;
};

struct Check {
  const char* name;
  Outcome (*measure)(const CheckInput& given);
};
std::span<const Check> checks();  // in the order of the report, which numbers them from 1

// --- shared by the checks ---------------------------------------------------------------------------------

using Numbers = std::vector<double>;

// The limit for identities that hold exactly but for rounding in double. The error is relative to a size in
// which nothing cancels.
constexpr double identity_limit = 1e-10;

// Adds normal numbers of deviation 0.3 to gains, biases and scales, because a gradient that is right only at
// gain 1 and bias 0 must not pass. A matrix of zeros (out, in) gets those of deviation 1/sqrt(in): behind it
// every gradient would be 0, right or wrong.
template <class Real>
void move_off_constants(const ParameterLayout& layout, std::uint64_t seed,
                        ParameterBuffer<Real>& parameters) {
  for (const Parameter& p : layout.list()) {
    Real* values = parameters.at(p);
    if (p.is_matrix() && std::any_of(values, values + p.size, [](Real x) { return x != 0; })) continue;
    const double deviation = p.is_matrix() ? 1 / std::sqrt(static_cast<double>(p.cols())) : 0.3;
    const RandomStream stream(seed, "moved " + p.name);
    for (Index i = 0; i < p.size; ++i) values[i] += static_cast<Real>(deviation * stream.normal(i));
  }
}

// Matrices of Xavier's scale (outputs over sqrt(2L), embeddings 0.5) whatever the config's init: a law holds
// for any weights, and with tiny or huge ones a fault could hide behind rounding.
constexpr InitConfig xavier = {
    .scheme = InitScheme::xavier_uniform, .embed_std = 0.5, .residual_scaling = true};

// A model without dropout, whose vectors are moved off their constants. Its branch factors are, with several
// blocks, those of three halves of the branches' warm-up, where block 1 is at full scale and block 2 is not;
// with one block those of half of it.
template <class Real>
struct TestModel : Model<Real> {
  TestModel(const CheckInput& given, ModelConfig model, const InitConfig& init = xavier)
      : Model<Real>(model, given.corpus.vocab.size(), given.config.train.gemm_mode()) {
    model.init = init;
    initialise(model, this->layout(), given.config.train.seed, this->parameters);
    move_off_constants(this->layout(), given.config.train.seed, this->parameters);
    const Index warmup = given.config.train.branch_warmup_steps;
    this->branch_progress = given.config.train.branch_progress(
        model.n_layer > 1 ? warmup + warmup / 2 : warmup / 2);
  }
};

// True if norms' statistics are constants to the backward pass.
inline bool is_detached(const ModelConfig& config) {
  return config.norm_detach && norm_row(config.norm).has_detached;
}

// Sequences of the training text, cut to max_context characters: two, or as many as have `characters`
// together, since batch norm over few tokens would be degenerate.
WindowBatch small_batch(const CheckInput& given, Index max_context, Index characters = 16);
inline Pass view(const WindowBatch& batch) { return {batch.tokens, batch.targets, batch.context}; }

// Compares <g, d> with the derivative of the equations' loss along d, for each parameter with gradient g. The
// direction d is an equal mix of g/|g| and a random vector: a random direction alone would reveal only
// 1/sqrt(size) of an error.
Outcome compare_with_derivatives(Model<double>& model, const Pass& batch,
                                 const ParameterBuffer<double>& gradients);

// The derivative of the equations' loss along the direction of each parameter, the others held.
std::vector<double> slopes_of_loss(const Model<double>& model, const Pass& batch,
                                   const ParameterBuffer<double>& directions);

inline double l2_norm(Index n, const double* x) { return std::sqrt(dot(n, x, x)); }
inline double l2_distance(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// The numbers of a training pass by name: loss, act.<layer>.<site>, act_grad.<layer>.<site>,
// grad.<parameter>.
using Tensors = std::map<std::string, Numbers>;
template <class Real>
Tensors tensors_of(Model<Real>& model, const Pass& batch, SiteCopies<Real>&& sites = {}) {
  model.gradients.clear();
  Tensors all{{"loss", {model.loss_and_gradients(batch, 1, &sites)}}};
  for (const auto& [kind, copies] : {std::pair("act.", &sites.values), {"act_grad.", &sites.gradients}}) {
    for (const auto& [id, rows, cols, x] : *copies)
      all[text(kind, id.layer, '.', name_of(id.site))] = {x.begin(), x.end()};
  }
  for (const Parameter& p : model.layout().list())
    all["grad." + p.name] = {model.gradients.at(p), model.gradients.at(p) + p.size};
  return all;
}

// The outcome, unless a result is NaN because a norm without eps divides 0 by 0 (ReLUs can leave rows of
// zeros), or because relu2 or swiglu overflows without norms. The law does not apply then.
Outcome unless_nan(const CheckInput& given, const Outcome& outcome);

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
