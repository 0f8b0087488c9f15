#include "check/trial.h"

#include <algorithm>

#include "core/random.h"
#include "model/cost.h"

namespace normscope {

ModelConfig without_dropout(ModelConfig model) {
  model.dropout = 0;
  return model;
}

ModelConfig without_eps(ModelConfig model) {
  model.norm_eps = 0;
  return without_dropout(model);
}

template <class Real>
void move_vectors(const ParameterLayout& layout, std::uint64_t seed, ParameterBlock<Real>& parameters) {
  for (const Parameter& p : layout.list()) {
    if (p.is_matrix() || !p.trainable) continue;
    const RandomStream stream(seed, "moved " + p.name);
    for (Index i = 0; i < p.size; ++i) {
      parameters.at(p)[i] += static_cast<Real>(0.3 * stream.normal(static_cast<std::uint64_t>(i)));
    }
  }
}

template void move_vectors(const ParameterLayout&, std::uint64_t, ParameterBlock<float>&);
template void move_vectors(const ParameterLayout&, std::uint64_t, ParameterBlock<double>&);

Trial::Trial(const Subject& subject, const ModelConfig& model)
    : Model<double>(model, subject.corpus.vocab.size(), gemm_provider(subject.config.train)) {
  const auto seed = static_cast<std::uint64_t>(subject.config.train.seed);
  initialise(model, layout(), seed, parameters);
  move_vectors(layout(), seed, parameters);
}

TrialBatch::TrialBatch(const Subject& subject, Index sequences, Index context)
    : tokens(static_cast<std::size_t>(sequences * context)), targets(tokens.size()), context_(context) {
  const BatchSampler sampler(subject.corpus.train, context,
                             static_cast<std::uint64_t>(subject.config.train.seed));
  sampler.fill(1, 0, sequences, tokens.data(), targets.data());
}

TrialBatch affordable_batch(const Subject& subject, double most_flops) {
  const ModelConfig& model = subject.config.model;
  const ParameterLayout layout(model, subject.corpus.vocab.size());
  const auto tokens = static_cast<Index>(most_flops / training_flops_per_token(model, layout));
  const Index context = std::clamp<Index>(tokens, std::min<Index>(model.context, 2), model.context);
  return {subject, std::max<Index>(tokens >= 2 * context ? 2 : 1, 16 / context), context};
}

Slice inner(const Model<double>& model, int parameter, Index begin, Index count) {
  const Parameter& p = model.layout()[parameter];
  const double *w = model.parameters.at(p) + begin, *g = model.gradients.at(p) + begin;
  return {dot(count, w, g), l2_norm(count, w) * l2_norm(count, g)};
}

Slice inner(const Model<double>& model, int parameter) {
  return inner(model, parameter, 0, model.layout()[parameter].size);
}

double l2_norm(Index n, const double* x) { return std::sqrt(dot(n, x, x)); }

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), "check", "two sides of a law have ", a.size(), " and ", b.size(), " numbers");
  double distance = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    distance += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return distance == 0 ? 0 : std::sqrt(distance / size);
}

}  // namespace normscope
