// The initial weights have the scale of the config's scheme and placement, by a second implementation.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

constexpr double max_errors = 6;  // standard errors; normal draws exceed 5 once in a million times

// Standard deviation of the elements of a matrix (out, in): the scheme's, times 1/sqrt(2L) for matrices that
// write the stream (gpt2), times the placement's gain.
double expected_std(const ModelConfig& config, const Parameter& p, bool query_or_key) {
  const double gain = expected_init_gain(config, p, query_or_key);
  if (p.layer == 0) return gain * config.init.embed_std;
  const bool qkv = p.name.ends_with(".qkv.weight");  // three matrices
  const double out = static_cast<double>(qkv ? p.rows() / 3 : p.rows()), in = static_cast<double>(p.cols());
  const double std = config.init.scheme == InitScheme::gpt2             ? config.init.std
                     : config.init.scheme == InitScheme::kaiming_normal ? std::sqrt(2 / in)
                                                                        : std::sqrt(2 / (in + out));
  const bool scaled = p.name.ends_with(".out.weight") && config.init.residual_scaling;
  return gain * std / (scaled ? std::sqrt(2.0 * static_cast<double>(config.n_layer)) : 1);
}

double expected_value(const ModelConfig& config, const Parameter& p) {
  const std::string& vector = p.name;
  if (vector.ends_with("_scale"))
    return expected_branch_scale(config, p.layer, vector.ends_with("attn_scale") ? "attn" : "ffn");
  const bool one = vector.ends_with("norm.weight");
  return vector.ends_with(".alpha") ? 0.5 : one ? 1 : 0;
}

}  // namespace

Outcome first_values(const Context& given) {
  const ModelConfig& config = given.config.model;
  Model<double> model(config, given.corpus.vocab.size(), GemmProvider::openblas);
  initialise(config, model.layout(), given.config.train.seed, model.parameters);
  Worst worst;
  // Adds the distance of a part's root mean square from its expectation, in standard errors. n normal draws
  // have a relative one of 1/sqrt(2n), uniform draws less.
  const auto random = [&](const std::string& name, Index count, const double* w, double std) {
    const double n = static_cast<double>(count), rms = l2_norm(count, w) / std::sqrt(n);
    worst.add(name, std == 0 ? rms : std::abs(rms / std - 1) * std::sqrt(2 * n), max_errors);
  };
  for (const Parameter& p : model.layout().list()) {
    const double* w = model.parameters.at(p);
    if (!p.is_matrix()) {
      const double want = expected_value(config, p);
      worst.add(p.name, std::count(w, w + p.size, want) == p.size ? 0 : INFINITY, max_errors);
      continue;
    }
    const Index queries_and_keys = p.name.ends_with(".qkv.weight") ? p.size / 3 * 2 : 0;
    if (queries_and_keys > 0)
      random(p.name + ", q and k", queries_and_keys, w, expected_std(config, p, true));
    random(p.name, p.size - queries_and_keys, w + queries_and_keys, expected_std(config, p, false));
  }
  return worst.result(text("first weights have the scale of ", name_of(config.init.scheme),
                           " and the placement; gains 1, biases 0 (in standard errors)"));
}

}  // namespace normscope
