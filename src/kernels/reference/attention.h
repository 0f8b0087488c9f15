// Causal attention with its whole matrix of weights, one head at a time.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/attention.h"

namespace normscope::reference {

// One head of one sequence: its scores' softmax and dropout mask, (queries, keys) each, 0 where masked.
struct HeadWeights {
  std::vector<double> softmax, mask;  // mask: 0 or 1/(1-p)
  std::vector<double> max, sum;       // (queries): softmax = exp(score - max) / sum
};

// The first element of row t of a head, in a tensor whose sequences have `rows` rows of `stride` numbers.
template <class Real>
Index head_row(const Attention<Real>& a, Index sequence, Index head, Index rows, Index stride, Index t) {
  return (sequence * rows + t) * stride + head * a.head_dim;
}

template <class Real>
HeadWeights head_weights(const Attention<Real>& a, Index sequence, Index head) {
  const auto size = static_cast<std::size_t>(a.queries * a.keys);
  HeadWeights w{std::vector<double>(size), std::vector<double>(size), {}, {}};
  const RandomStream stream = a.dropout_stream.at(static_cast<std::uint64_t>(a.first_sequence + sequence));
  for (Index t = 0; t < a.queries; ++t) {
    const Real* q = a.q + head_row(a, sequence, head, a.queries, a.q_stride, t);
    const Index visible = a.keys - a.queries + t + 1;
    std::vector<double> scores;
    double top = -INFINITY, sum = 0;
    for (Index key = 0; key < visible; ++key) {
      const Real* k = a.k + head_row(a, sequence, head, a.keys, a.kv_stride, key);
      double score = 0;
      for (Index d = 0; d < a.head_dim; ++d) score += double{q[d]} * double{k[d]};
      scores.push_back(score / std::sqrt(static_cast<double>(a.head_dim)));
      top = std::fmax(top, scores.back());
    }
    for (const double score : scores) sum += std::exp(score - top);
    w.max.push_back(top);
    w.sum.push_back(sum);
    for (Index key = 0; key < visible; ++key) {
      const Index at = t * a.keys + key;
      const auto draw = static_cast<std::uint64_t>((head * a.queries + t) * a.keys + key);
      w.softmax[static_cast<std::size_t>(at)] = std::exp(scores[static_cast<std::size_t>(key)] - top) / sum;
      w.mask[static_cast<std::size_t>(at)] =
          a.dropout > 0 && stream.uniform(draw) < a.dropout ? 0 : 1 / (1 - a.dropout);
    }
  }
  return w;
}

template <class Real>
void attention_forward(const Attention<Real>& a, Real* out, SoftmaxStats<Real> stats) {
  const Index width = a.heads * a.head_dim;
  for (Index item = 0; item < a.sequences * a.heads; ++item) {
    const Index sequence = item / a.heads, head = item % a.heads;
    const HeadWeights w = head_weights(a, sequence, head);
    for (Index t = 0; t < a.queries; ++t) {
      stats.max[item * a.queries + t] = static_cast<Real>(w.max[static_cast<std::size_t>(t)]);
      stats.sum[item * a.queries + t] = static_cast<Real>(w.sum[static_cast<std::size_t>(t)]);
      for (Index d = 0; d < a.head_dim; ++d) {
        double sum = 0;
        for (Index key = 0; key < a.keys; ++key) {
          const auto at = static_cast<std::size_t>(t * a.keys + key);
          sum += w.softmax[at] * w.mask[at] * a.v[head_row(a, sequence, head, a.keys, a.kv_stride, key) + d];
        }
        out[head_row(a, sequence, head, a.queries, width, t) + d] = static_cast<Real>(sum);
      }
    }
  }
}

// dv_j = sum_t P_tj M_tj do_t;  dP_tj = M_tj do_t·v_j;  dS = P∘(dP - sum_j P dP) / sqrt(D);
// dq_t = sum_j dS_tj k_j;  dk_j = sum_t dS_tj q_t.
template <class Real>
void attention_backward(const Attention<Real>& a, const Real* dout, Real* dq, Real* dk, Real* dv, Real beta) {
  const Index T = a.queries, D = a.head_dim, width = a.heads * D;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  for (Index item = 0; item < a.sequences * a.heads; ++item) {
    const Index sequence = item / a.heads, head = item % a.heads;
    const HeadWeights w = head_weights(a, sequence, head);
    const auto q_row = [&](Index t) { return head_row(a, sequence, head, T, a.q_stride, t); };
    const auto kv_row = [&](Index t) { return head_row(a, sequence, head, T, a.kv_stride, t); };
    std::vector<double> q_sum(static_cast<std::size_t>(T * D)), k_sum(q_sum), v_sum(q_sum);
    for (Index t = 0; t < T; ++t) {
      const Real* d_out = dout + head_row(a, sequence, head, T, width, t);
      std::vector<double> dp(static_cast<std::size_t>(t + 1));
      double mean = 0;
      for (Index j = 0; j <= t; ++j) {
        const auto at = static_cast<std::size_t>(t * T + j);
        double& dp_j = dp[static_cast<std::size_t>(j)];
        for (Index d = 0; d < D; ++d) {
          dp_j += w.mask[at] * d_out[d] * a.v[kv_row(j) + d];
          v_sum[static_cast<std::size_t>(j * D + d)] += w.softmax[at] * w.mask[at] * d_out[d];
        }
        mean += w.softmax[at] * dp_j;
      }
      for (Index j = 0; j <= t; ++j) {
        const double p = w.softmax[static_cast<std::size_t>(t * T + j)];
        const double ds = p * (dp[static_cast<std::size_t>(j)] - mean) * scale;
        for (Index d = 0; d < D; ++d) {
          q_sum[static_cast<std::size_t>(t * D + d)] += ds * a.k[kv_row(j) + d];
          k_sum[static_cast<std::size_t>(j * D + d)] += ds * a.q[q_row(t) + d];
        }
      }
    }
    const auto put = [&](Real& out, double sum) {
      out = static_cast<Real>((beta == 0 ? 0.0 : double{beta} * out) + sum);
    };
    for (Index t = 0; t < T; ++t) {
      for (Index d = 0; d < D; ++d) {
        const auto at = static_cast<std::size_t>(t * D + d);
        put(dq[q_row(t) + d], q_sum[at]);
        put(dk[kv_row(t) + d], k_sum[at]);
        put(dv[kv_row(t) + d], v_sum[at]);
      }
    }
  }
}

}  // namespace normscope::reference
