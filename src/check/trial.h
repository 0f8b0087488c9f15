// What the proofs have in common: models with every 1-D tensor off its start, batches, small sums.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "check/check.h"
#include "data/batches.h"
#include "kernels/elementwise.h"
#include "model/model.h"
#include "telemetry/site_copies.h"
#include "train/environment.h"

namespace normscope {

constexpr double identity_limit = 1e-8;  // of what holds exactly: in double 1e-16 is usual

// The config's model without dropout; `without_eps` also with norm_eps 0, where a law is exact only then.
ModelConfig without_dropout(ModelConfig model);
ModelConfig without_eps(ModelConfig model);

// Moves gains, biases and scales by N(0, 0.3): a gradient that is right only at gain 1 and bias 0 must not
// pass. Running statistics stay.
template <class Real>
void move_vectors(const ParameterLayout& layout, std::uint64_t seed, ParameterBlock<Real>& parameters);

// A model in double with moved vectors.
class Trial : public Model<double> {
 public:
  Trial(const Subject& subject, const ModelConfig& model);
};

// The first `sequences` sequences of the run's first batch, each cut to `context` characters.
class TrialBatch {
 public:
  TrialBatch(const Subject& subject, Index sequences, Index context);
  TokenBatch view() const { return {tokens, targets, context_}; }

  std::vector<Token> tokens, targets;

 private:
  Index context_;
};

// A batch small enough that a pass in double takes a fraction of a second: two sequences (more where they are
// short: batch norm over two tokens would be degenerate), or one of a large model, cut where even that is too
// much.
TrialBatch affordable_batch(const Subject& subject, double most_flops = 2e10);

// Elements [begin, begin + count) of two blocks' tensor, multiplied and summed; the same over both norms.
struct Slice {
  double product, norms;
  double cosine() const { return norms > 0 ? std::abs(product) / norms : 0; }
};
Slice inner(const Model<double>& model, int parameter, Index begin, Index count);
Slice inner(const Model<double>& model, int parameter);

double l2_norm(Index n, const double* x);

// Keeps the largest error and where it was. A NaN is larger than any number.
class Worst {
 public:
  void add(double candidate, const std::string& candidate_place) {
    if (std::isnan(error) || candidate <= error) return;
    error = candidate;
    place = candidate_place;
  }
  double error = 0;
  std::string place;
};

// ||a - b|| / ||b||.
double relative_distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace normscope
