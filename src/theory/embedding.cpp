#include "theory/embedding.h"

#include <cmath>

#include "model/transformer.h"

namespace normscope {

Signal embedded(const ModelConfig& config, double variance, const TextStatistics& text, Index sequences) {
  const Index T = config.context, tokens = sequences * T, pairs = config.d_model / 2;
  const std::vector<double> zeros(static_cast<std::size_t>(tokens)), ones(zeros.size(), 1);
  Signal x{Kernel(tokens, [&](Index t, Index s) { return variance * text.same(t, s); }), zeros, ones};
  if (config.position == Position::learned) {
    x.kernel += Kernel(tokens, [&](Index t, Index s) { return t % T == s % T ? variance : 0; });
  } else if (config.position == Position::sinusoidal) {
    // Features 2i and 2i+1: sin sin + cos cos is the cosine of the difference.
    const auto over_features = [&](auto f) {
      double sum = 0;
      for (Index i = 0; i < pairs; ++i) sum += f(i) / static_cast<double>(2 * pairs);
      return sum;
    };
    const auto angle = [&](Index t, Index i) { return position_angle(t, i, 2 * pairs); };
    x.kernel += Kernel(tokens, [&](Index t, Index s) {
      return over_features([&](Index i) { return std::cos(angle(t % T - s % T, i)); });
    });
    for (Index t = 0; t < tokens; ++t)
      x.mean[t] =
          over_features([&](Index i) { return std::sin(angle(t % T, i)) + std::cos(angle(t % T, i)); });
  }
  return x;
}

}  // namespace normscope
