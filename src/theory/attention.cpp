#include "theory/attention.h"

#include <algorithm>
#include <cmath>

#include "model/transformer.h"
#include "theory/softmax_moments.h"

namespace normscope {
namespace {

// Five points and weights of the standard normal distribution (Gauss-Hermite).
constexpr double normal_points[] = {-2.856970013872806, -1.355626179974266, 0, 1.355626179974266,
                                    2.856970013872806};
constexpr double normal_weights[] = {0.01125741132772069, 0.2220759220056126, 0.5333333333333333,
                                     0.2220759220056126, 0.01125741132772069};

// |q|^2 / E |q|^2 of a head: chi^2_D / D, by Wilson and Hilferty's cube of a normal variable.
double squared_length(double z, Index head_dim) {
  const double v = 2 / (9.0 * real(head_dim));
  return std::pow(std::max(1 - v + z * std::sqrt(v), 0.0), 3);
}

}  // namespace

// Pairs of queries (t, t') of two cells: those with t = t', or the others. With `other`, t' and s' are of the
// second sequence, and there is one kind of pairs.
struct AttentionMap::Pass {
  const AttentionMap& map;
  Index first, end, first2, end2;  // t, t'
  bool diagonal;
  Index other;                         // where the sequence of t' and s' begins: 0, or T
  double exponent = 0;                 // beta sqrt(gamma gamma') K_tt', mean over the pairs
  double slope = 1;                    // of pairs t != t' over sqrt(f f')
  Index lag = 0;                       // t - t'
  std::vector<double> x = {}, w = {};  // (end, end2): K~ with rope's cosines; the weights exp(exponent x)
  std::vector<double> total = {};      // of each pair, the sum of its weights

  template <class Use>
  void each_pair(Use use) const {
    for (Index t = first; t < end; ++t) {
      for (Index t2 = first2; t2 < end2; ++t2) {
        if (other > 0 || diagonal == (t == t2)) use(t, t2);
      }
    }
  }
  double key(Index t, Index t2) const { return map.key_(t, t2 + other); }
  double turn(Index s, Index s2) const { return map.turn(s - s2 - lag); }

  // False: there are no such pairs.
  bool prepare() {
    double sum = 0, count = 0, rho = 0;
    lag = (first + end) / 2 - (first2 + end2) / 2;
    each_pair([&](Index t, Index t2) {
      sum += std::sqrt(map.gamma_[t] * map.gamma_[t2]) * key(t, t2);
      rho += key(t, t2) / std::sqrt(map.key_(t, t) * map.key_(t2, t2));
      ++count;
    });
    if (count == 0) return false;
    exponent = map.beta_ * sum / count;
    const Index t = (first + end - 1) / 2, t2 = (first2 + end2 - 1) / 2;
    const double squares = map.variance_[t] * map.variance_[t2];
    if (!diagonal && squares > 0) {  // they agree on a key less than gamma says
      const double n = real(t + 1), sigma = std::pow(squares, 0.25);
      rho = std::clamp(std::abs(rho / count * turn(0, 0)), 1e-6, 1.0);
      const SharedMoments both = shared_moments(n, sigma, rho), same = shared_moments(n, sigma, 1);
      exponent *= both.exponent / same.exponent / rho;
      slope = both.slope / same.slope;
    }
    x = centred(end, end2, [&](Index s, Index s2) { return key(s, s2) * turn(s, s2); });
    for (const double v : x) w.push_back(std::exp(exponent * v));
    total = sums([](Index, Index, double weight) { return weight; });
    return true;
  }

  // A_ts A_t's' (v_s - mean v).(v_s' - mean v), whose sums over s and over s' are 0.
  std::vector<double> moved() const {
    std::vector<double> v = centred(end, end2, [&](Index s, Index s2) { return map.value_(s, s2 + other); });
    return centred(end, end2, [&](Index s, Index s2) { return w[s * end2 + s2] * v[s * end2 + s2]; });
  }

  std::size_t pair(Index t, Index t2) const { return (t - first) * (end2 - first2) + t2 - first2; }

  // For each pair (t, t'), the sum over s <= t, s' <= t' of term(s, s', w).
  template <class Term>
  std::vector<double> sums(Term term) const {
    std::vector<double> out(pair(end, first2)), column(end2);
    for (Index s = 0; s < end; ++s) {
      for (Index s2 = 0; s2 < end2; ++s2) column[s2] += term(s, s2, w[s * end2 + s2]);
      if (s < first) continue;
      double sum = 0;
      for (Index s2 = 0; s2 < end2; ++s2) {
        sum += column[s2];
        if (s2 >= first2) out[pair(s, s2)] = sum;
      }
    }
    return out;
  }

  // For each pair, the sum of `moved` times K~: the effect of noise in its scores on its outputs, and of its
  // outputs' gradients on its queries.
  std::vector<double> changes(const std::vector<double>& moved) const {
    return sums([&](Index s, Index s2, double) { return moved[s * end2 + s2] * x[s * end2 + s2]; });
  }

  // Adds to kernel(s, s') the sum over pairs with t >= s, t' >= s' of factor(pair) times term(s, s', w).
  template <class Term>
  void spread(std::vector<double> factor, Kernel& kernel, Term term) const {
    for (Index t = end; t-- > first;) {
      for (Index t2 = end2; t2-- > first2;) {
        const auto at = [&](Index a, Index b) { return a < end && b < end2 ? factor[pair(a, b)] : 0; };
        factor[pair(t, t2)] += at(t + 1, t2) + at(t, t2 + 1) - at(t + 1, t2 + 1);
      }
    }
    for (Index s = 0; s < end; ++s) {
      for (Index s2 = 0; s2 < end2; ++s2)
        kernel(s, s2 + other) +=
            factor[pair(std::max(s, first), std::max(s2, first2))] * term(s, s2, w[s * end2 + s2]);
    }
  }
};

template <class Use>
void AttentionMap::each_pass(Use use) const {
  for (std::size_t i = 0; i + 1 < cells_.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      for (Index other = 0; other < in_.size; other += length_) {
        for (const bool diagonal : {false, true}) {
          if (diagonal && (i != j || other > 0)) continue;
          Pass pass{*this, cells_[i], cells_[i + 1], cells_[j], cells_[j + 1], diagonal, other};
          if (pass.prepare()) use(pass);
        }
      }
    }
  }
}

// The second sequence's part of a kernel from the first's.
Kernel AttentionMap::mirrored(Kernel kernel) const {
  const Index T = length_;
  for (Index t = T; t < kernel.size; ++t) {
    for (Index s = 0; s < kernel.size; ++s) kernel(t, s) = kernel(t - T, (s + T) % kernel.size);
  }
  return kernel;
}

AttentionMap::AttentionMap(Kernel in, const AttentionScale& scale)
    : in_(std::move(in)), scale_(scale), length_(in_.size / scale.sequences) {
  const Index T = length_, tokens = in_.size;
  const Kernel unit(tokens, [&](Index t, Index s) { return in_(t, s) / std::sqrt(in_(t, t) * in_(s, s)); });
  key_ = scale.qk_norm ? unit : in_;
  value_ =
      scale.value_norm ? unit : Kernel(tokens, [&](Index t, Index s) { return scale.value * in_(t, s); });
  beta_ = scale.qk_norm ? 1 : scale.query * scale.query;
  if (scale.rope) {
    const Index pairs = scale.head_dim / 2;
    for (Index offset = -2 * T; offset <= 2 * T; ++offset) {
      double sum = 0;
      for (Index i = 0; i < pairs; ++i) sum += std::cos(position_angle(offset, i, 2 * pairs));
      turn_.push_back(sum / real(pairs));
    }
  }
  for (Index first = 0; first < T;
       first = std::max(first + 1, static_cast<Index>(real(first) * scale.cell_growth)))
    cells_.push_back(first);
  cells_.push_back(T);
  gamma_ = slope_ = std::vector<double>(T, 1);
  variance_.resize(T);
  double trace = 0, sum = 0;  // of the scores' covariance over the keys so far, over beta K_tt
  for (Index t = 0; t < T; ++t) {
    trace += key_(t, t);
    for (Index s = 0; s <= t; ++s) sum += (s < t ? 2 : 1) * key_(t, s) * turn(t - s);
    if (t == 0) continue;
    const double n = real(t + 1);
    const double variance =
        std::max(beta_ * key_(t, t) * (trace - sum / n) / (n - 1), 0.0);  // about their mean

    SoftmaxMoments mean{};
    for (std::size_t k = 0; k < std::size(normal_points); ++k) {
      const double length = scale.qk_norm ? 1 : squared_length(normal_points[k], scale.head_dim);
      const SoftmaxMoments m = softmax_moments(n, std::sqrt(variance * length));
      mean.participation += normal_weights[k] * m.participation;
      mean.slope += normal_weights[k] * m.slope;
      mean.entropy += normal_weights[k] * m.entropy;
    }
    const double y = mean.participation;
    if (variance > 1e-10) {
      variance_[t] = variance;
      gamma_[t] = participation_exponent(n, y) / variance;
      slope_[t] = std::sqrt(mean.slope / slope_of(n, y));
    }
    entropy += mean.entropy / real(T);
    score_std = std::sqrt(variance);
  }
}

Kernel AttentionMap::forward() {
  Kernel out(in_.size);
  score_response = 0;
  each_pass([&](const Pass& pass) {
    const std::vector<double> read =
        pass.sums([&](Index s, Index s2, double w) { return w * value_(s, s2 + pass.other); });
    pass.each_pair([&](Index t, Index t2) {
      const std::size_t at = pass.pair(t, t2);
      out(t, t2 + pass.other) = out(t2, t + pass.other) = read[at] / pass.total[at];
    });
    if (!pass.diagonal) return;
    const std::vector<double> change = pass.changes(pass.moved());
    for (Index t = pass.first; t < pass.end; ++t)
      score_response += slope_[t] * slope_[t] * beta_ * key_(t, t) * change[pass.pair(t, t)] /
                        pass.total[pass.pair(t, t)] / real(length_);
  });
  return mirrored(out);
}

// Values: G^v_ss' = sum_tt' M G_tt'. Scores: ds_ts = A_ts (da_t.(v_s - mean v)), so that with f, the factor
// by which a sharp softmax passes less,
//   G^q_tt' = f G_tt' sum_ss' M K~^v_ss' K~^k_ss',  G^k_ss' = sum_tt' f G_tt' M K~^v_ss' K^q_tt'.
Kernel AttentionMap::backward(const Kernel& gradient) const {
  Kernel values(in_.size), scores(values);
  each_pass([&](const Pass& pass) {
    const std::vector<double> moved = pass.moved(), query = pass.changes(moved);
    std::vector<double> through(query.size()), through_scores(query.size());
    // Only pairs (t, t') of two cells are visited; (t', t) follow by symmetry.
    const double once = pass.first == pass.first2 ? 0.5 : 1;
    pass.each_pair([&](Index t, Index t2) {
      const std::size_t at = pass.pair(t, t2);
      through[at] = once * gradient(t, t2 + pass.other) / pass.total[at];
      const double f = through[at] * slope_[t] * slope_[t2] * pass.slope;
      scores(t, t2 + pass.other) += f * query[at];
      through_scores[at] = f * pass.key(t, t2);
    });
    pass.spread(through, values, [&](Index, Index, double w) { return w; });
    pass.spread(through_scores, scores,
                [&](Index s, Index s2, double) { return moved[s * pass.end2 + s2] * pass.turn(s, s2); });
  });
  // Back through W_q, W_k of scores in the scale of W_k, W_q, and through W_v; a norm has divided by what its
  // matrix gave.
  const double D = real(scale_.head_dim);
  // E 1/|q|^2, less what lies along q.
  const double finite = scale_.finite_width ? (D - 1) / std::max(D - 2, 1.0) : 1;
  const Kernel v = mirrored(values), qk = mirrored(scores);
  return Kernel(in_.size, [&](Index t, Index s) {
    const double normed = finite / std::sqrt(in_(t, t) * in_(s, s));
    return (scale_.value_norm ? normed : scale_.value) * (v(t, s) + v(s, t)) +
           (scale_.qk_norm ? normed : scale_.query * scale_.query) * (qk(t, s) + qk(s, t));
  });
}

}  // namespace normscope
