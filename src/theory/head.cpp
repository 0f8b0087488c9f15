#include "theory/head.h"

#include <algorithm>
#include <cmath>

#include "model/transformer.h"
#include "theory/softmax_moments.h"

namespace normscope {

TextStatistics text_statistics(const Corpus& corpus, Index context) {
  const std::vector<Token>& text = corpus.train;
  TextStatistics statistics{corpus.vocab.size(), {}, 0};
  for (Index d = 0; d <= context; ++d) {
    const Index pairs = std::ssize(text) - d;
    Index same = 0;
    for (Index i = 0; i < pairs; ++i) same += text[i] == text[i + d];
    statistics.collisions.push_back(real(same) / real(pairs));
  }
  std::vector<double> counts(corpus.vocab.size());
  for (const Token c : text) ++counts[c];
  for (const double count : counts) statistics.unrelated += std::pow(count / real(std::ssize(text)), 2);
  return statistics;
}

Signal embedded(const ModelConfig& config, double variance, const TextStatistics& text, Index sequences) {
  const Index T = config.context, tokens = sequences * T, pairs = config.d_model / 2;
  const std::vector<double> zeros(tokens), ones(zeros.size(), 1);
  Signal x{Kernel(tokens, [&](Index t, Index s) { return variance * text.same(t, s); }), zeros, ones};
  if (config.position == Position::learned) {
    x.kernel += Kernel(tokens, [&](Index t, Index s) { return t % T == s % T ? variance : 0; });
  } else if (config.position == Position::sinusoidal) {
    // Features 2i and 2i+1: sin sin + cos cos is the cosine of the difference.
    const auto over_features = [&](auto f) {
      double sum = 0;
      for (Index i = 0; i < pairs; ++i) sum += f(i) / real(2 * pairs);
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

HeadPrediction predict_head(const Signal& x, Index width, double variance, bool tied, double tokens,
                            const TextStatistics& text) {
  const Index T = x.kernel.size;
  const double V = real(text.vocabulary), scale = real(width) * variance;
  const std::vector<double>& R = text.collisions;
  const double whole = std::pow(real(width) * tokens, 2);
  HeadPrediction head{};
  std::vector<double> own, other, exponent;  // E p of the character just read, of another; see below
  for (Index t = 0; t < T; ++t) {
    const double shift = tied ? scale * x.share[t] : 0, sigma = std::sqrt(scale * x.kernel(t, t));
    ShiftedSoftmax p = shifted_softmax(V, sigma, shift);
    const double mean = p.own * p.own + (V - 1) * p.other * p.other;
    const double square = p.own_square + (V - 1) * p.other_square;  // E |p|^2
    exponent.push_back(participation_exponent(V, square - mean + 1 / V));
    own.push_back(p.own);
    other.push_back(p.other);
    head.loss += (p.log_sum - shift * R[1]) / real(T);
    head.logits += (sigma * sigma + shift * shift / V) / real(T);
    const double right = p.other + (p.own - p.other) * R[1];  // E p of the target
    head.logits_gradient += (square - 2 * right + 1) / V / (tokens * tokens) / real(T);
    const double pull = shift * shift * (p.own_square - 2 * p.own * R[1] + R[1]);
    // Logits follow the head's rows: of independent z_v, sum_v p_v z_v has the mean sigma^2 (1 - E |p|^2)
    // (Stein), and x.dx = sum_v (p - y)_v z_v, which variance * E |p - y|^2 does not know.
    const double mean_pull = sigma * sigma * (1 - square);
    head.along.push_back(mean_pull * (mean_pull + 2 * shift * (p.own - R[1])) / x.kernel(t, t) / whole);
    head.projection.push_back(pull / whole);
  }
  // sum_v (p - y)_v (p' - y')_v: the means of p and p', what they vary together, and the targets.
  head.gradient = Kernel(T, [&](Index t, Index s) {
    const double own_t = own[t] - other[t], own_s = own[s] - other[s];
    const double means =
        V * other[t] * other[s] + own_t * other[s] + own_s * other[t] + text.same(t, s) * own_t * own_s;
    const double rho = x.kernel(t, s) / std::sqrt(x.kernel(t, t) * x.kernel(s, s));
    const double e = std::exp(std::sqrt(exponent[t] * exponent[s]) * rho);
    const double targets = other[t] + own_t * text.same(t, s, 1) + other[s] + own_s * text.same(s, t, 1);
    return variance * (means + e / (V - 1 + e) - 1 / V - targets + text.same(t, s)) / (tokens * tokens);
  });
  return head;
}

}  // namespace normscope
