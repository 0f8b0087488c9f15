// Naive twins of GEMM and causal attention, summed in double. The fast kernels are tested against them. They
// are the engine's double path too, except for GEMM, whose doubles OpenBLAS multiplies.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "kernels/attention.h"
#include "kernels/gemm/gemm.h"

namespace normscope::reference {

// --- GEMM: three loops ---

template <class Real>
void gemm(const Gemm<Real>& g) {
  const auto at = [](const Matrix<Real>& x, Index i, Index j) {
    return static_cast<double>(*x.part(i, j, 1, 1).data);
  };
  for (Index i = 0; i < g.c.rows; ++i) {
    for (Index j = 0; j < g.c.cols; ++j) {
      double sum = 0;
      for (Index k = 0; k < g.a.cols; ++k) sum += at(g.a, i, k) * at(g.b, k, j);
      Real& c = g.c.data[i * g.c.ld + j];
      const double before = g.beta == 0 ? 0.0 : static_cast<double>(g.beta) * static_cast<double>(c);
      c = static_cast<Real>(before + sum);
    }
  }
}

// --- Causal attention with its whole matrix of weights, one head at a time ---

// One head of one sequence: its scores' softmax and dropout mask, (queries, keys) each, 0 where masked.
struct HeadWeights {
  std::vector<double> softmax, mask;  // mask: 0 or 1/(1-p)
  std::vector<double> max, sum;       // (queries): softmax = exp(score - max) / sum
};

// Weights of one head from Q and K alone, or by the statistics that the forward left.
template <class Real>
HeadWeights head_weights(const Attention<Real>& a, Index item, bool by_stats) {
  const Index queries = a.queries(), keys = a.keys(), D = a.head_dim();
  const Matrix<Real> q = a.head(a.q, item), k = a.head(a.k, item);
  std::vector<double> zeros(queries * keys), scores(keys);
  HeadWeights w{zeros, zeros, {}, {}};
  const RandomStream stream = a.dropout_stream.at(a.first_sequence + item / a.heads);
  for (Index t = 0; t < queries; ++t) {
    const Index visible = keys - queries + t + 1;
    double top = -INFINITY, sum = 0;
    for (Index key = 0; key < visible; ++key) {
      double score = 0;
      for (Index d = 0; d < D; ++d) score += double{q.data[t * q.ld + d]} * double{k.data[key * k.ld + d]};
      scores[key] = score / std::sqrt(static_cast<double>(D));
      top = std::fmax(top, scores[key]);
    }
    for (Index key = 0; key < visible; ++key) sum += std::exp(scores[key] - top);
    w.max.push_back(by_stats ? a.stats.max[item * queries + t] : top);
    w.sum.push_back(by_stats ? a.stats.sum[item * queries + t] : sum);
    for (Index key = 0; key < visible; ++key) {
      const Index draw = (item % a.heads * queries + t) * keys + key;
      w.softmax[t * keys + key] = std::exp(scores[key] - w.max[t]) / w.sum[t];
      w.mask[t * keys + key] = a.dropout > 0 && stream.uniform(draw) < a.dropout ? 0 : 1 / (1 - a.dropout);
    }
  }
  return w;
}

// Statistics of one head, weight by weight.
inline HeadStats stats_of(const HeadWeights& w, Index keys) {
  HeadStats stats{std::ssize(w.max), *std::ranges::max_element(w.max)};
  for (Index query = 0; query < stats.queries; ++query) stats.first_share += w.softmax[query * keys];
  for (const double p : w.softmax) stats.entropy -= p > 0 ? p * std::log(p) : 0;
  return stats;
}

template <class Real>
void attention_forward(const Attention<Real>& a) {
  const Index queries = a.queries(), keys = a.keys(), D = a.head_dim();
  parallel_for(a.sequences * a.heads, [&](Index item) {
    const HeadWeights w = head_weights(a, item, false);
    if (a.head_stats != nullptr) a.head_stats[item] = stats_of(w, keys);
    const Matrix<Real> v = a.head(a.v, item), out = a.head(a.out, item);
    for (Index t = 0; t < queries; ++t) {
      if (a.stats.max != nullptr) {
        a.stats.max[item * queries + t] = static_cast<Real>(w.max[t]);
        a.stats.sum[item * queries + t] = static_cast<Real>(w.sum[t]);
      }
      std::vector<double> sum(D);
      for (Index key = 0; key <= keys - queries + t; ++key) {
        const double weight = w.softmax[t * keys + key] * w.mask[t * keys + key];
        for (Index d = 0; d < D; ++d) sum[d] += weight * v.data[key * v.ld + d];
      }
      for (Index d = 0; d < D; ++d) out.data[t * out.ld + d] = static_cast<Real>(sum[d]);
    }
  });
}

// dv_j = sum_t P_tj M_tj do_t;  dP_tj = M_tj do_t·v_j;  dS = P∘(dP - sum_j P dP) / sqrt(D);
// dq_t = sum_j dS_tj k_j;  dk_j = sum_t dS_tj q_t.
template <class Real>
void attention_backward(const Attention<Real>& a, const AttentionGradients<Real>& gradients) {
  const Index T = a.queries(), D = a.head_dim();
  parallel_for(a.sequences * a.heads, [&](Index item) {
    const HeadWeights w = head_weights(a, item, true);
    const Matrix<Real> q = a.head(a.q, item), k = a.head(a.k, item), v = a.head(a.v, item);
    const Matrix<Real> d_out = a.head(gradients.out, item);
    std::vector<double> dq(T * D), dk(T * D), dv(T * D), dp(T);
    for (Index t = 0; t < T; ++t) {
      const Real* d_row = d_out.data + t * d_out.ld;
      double mean = 0;
      for (Index j = 0; j <= t; ++j) {
        const double p = w.softmax[t * T + j], mask = w.mask[t * T + j];
        dp[j] = 0;
        for (Index d = 0; d < D; ++d) {
          dp[j] += mask * d_row[d] * v.data[j * v.ld + d];
          dv[j * D + d] += p * mask * d_row[d];
        }
        mean += p * dp[j];
      }
      for (Index j = 0; j <= t; ++j) {
        const double ds = w.softmax[t * T + j] * (dp[j] - mean) / std::sqrt(static_cast<double>(D));
        for (Index d = 0; d < D; ++d) {
          dq[t * D + d] += ds * k.data[j * k.ld + d];
          dk[j * D + d] += ds * q.data[t * q.ld + d];
        }
      }
    }
    const auto put = [&](const Matrix<Real>& whole, const std::vector<double>& sums) {
      const Matrix<Real> out = a.head(whole, item);
      for (Index i = 0; i < T * D; ++i) {
        Real& x = out.data[i / D * out.ld + i % D];
        x = static_cast<Real>((gradients.beta == 0 ? 0.0 : double{gradients.beta} * x) + sums[i]);
      }
    };
    put(gradients.q, dq);
    put(gradients.k, dk);
    put(gradients.v, dv);
  });
}

}  // namespace normscope::reference
