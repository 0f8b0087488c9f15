#include "kernels/rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "core/portable_math.h"
#include "core/scratch.h"
#include "kernels/reference/kernels.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 32;
constexpr Index cols_per_block = 16;  // a cache line of floats, by one thread

// A sum over rows: `width` numbers, added to `total` if that is not null.
template <class Real>
struct RowSum {
  Real* total;
  Index width;
};

// Call body(begin, end, sums) for each block of rows, with `sums` zeroed for the block to add to (null where
// the total is), and add them to the totals in the order of the blocks. Each thread zeroes its own sums:
// cache lines that another core has written are slow to load.
template <class Real, std::size_t n, class Body>
void blocks_with_sums(Index rows, const std::array<RowSum<Real>, n>& totals, Body body) {
  const Index blocks = block_count(rows, rows_per_block);
  Index size = 0;
  for (const RowSum<Real>& sum : totals) size += blocks * sum.width;
  struct Partials;
  Real* partials = thread_scratch<Real, Partials>(size);
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    std::array<Real*, n> sums;
    Real* of_total = partials;
    for (std::size_t i = 0; i < n; ++i) {
      const auto [total, width] = totals[i];
      sums[i] = total != nullptr ? of_total + begin / rows_per_block * width : nullptr;
      if (total != nullptr) std::fill_n(sums[i], width, Real(0));
      of_total += blocks * width;
    }
    body(begin, end, sums);
  });
  for (const auto& [total, width] : totals) {
    if (total != nullptr) sum_rows(blocks, width, partials, total);
    partials += blocks * width;
  }
}

}  // namespace

template <class Real>
void layer_norm_forward(const LayerNorm<Real>& norm, Real* y) {
  parallel_blocks(norm.rows, rows_per_block, [&](Index begin, Index end) {
    kernels<Real>().layer_norm_forward(norm, begin, end, y);
    if constexpr (std::is_same_v<Real, float>) reference::forward_out_of_range(norm, begin, end, y);
  });
}

template <class Real>
void layer_norm_backward(const LayerNorm<Real>& norm, const NormGradients<Real>& gradients) {
  const Index width = norm.shared_gain ? norm.cols / norm.groups : norm.cols;
  const std::array<RowSum<Real>, 2> totals = {{{gradients.dgain, width}, {gradients.dbias, width}}};
  blocks_with_sums(norm.rows, totals, [&](Index begin, Index end, const std::array<Real*, 2>& sums) {
    NormGradients<Real> of_block = gradients;
    of_block.dgain = sums[0], of_block.dbias = sums[1];
    kernels<Real>().layer_norm_backward(norm, of_block, begin, end);
  });
}

template <class Real>
void pointwise_norm_forward(const PointwiseNorm<Real>& norm, Real* y) {
  parallel_blocks(norm.rows, rows_per_block, [&](Index begin, Index end) {
    kernels<Real>().pointwise_norm_forward(norm, begin, end, y);
  });
}

template <class Real>
void pointwise_norm_backward(const PointwiseNorm<Real>& norm, const NormGradients<Real>& gradients) {
  const std::array<RowSum<Real>, 4> totals = {{{gradients.dgain, norm.cols},
                                               {gradients.dbias, norm.cols},
                                               {gradients.dalpha, 1},
                                               {gradients.dshift, 1}}};
  blocks_with_sums(norm.rows, totals, [&](Index begin, Index end, const std::array<Real*, 4>& sums) {
    const NormGradients<Real> of_block{gradients.dy, gradients.dx, gradients.beta, sums[0],
                                       sums[1],      sums[2],      sums[3]};
    kernels<Real>().pointwise_norm_backward(norm, of_block, begin, end);
  });
}

template <class Real>
void cross_entropy_forward(const CrossEntropy<Real>& ce, Real* loss) {
  parallel_blocks(ce.rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* logits = ce.logits + row * ce.classes;
      kernels<Real>().softmax_stats(ce.classes, logits, ce.stats.max + row, ce.stats.sum + row);
      loss[row] =
          (ce.stats.max[row] - logits[ce.targets[row]]) + static_cast<Real>(portable::log(ce.stats.sum[row]));
    }
  });
}

template <class Real>
void cross_entropy_backward(const CrossEntropy<Real>& ce, Real scale, Real* dlogits, Real beta) {
  parallel_blocks(ce.rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      Real* d = dlogits + row * ce.classes;
      kernels<Real>().add_exponentials(ce.classes, ce.logits + row * ce.classes, ce.stats.max[row],
                                       scale / ce.stats.sum[row], d, beta);
      d[ce.targets[row]] -= scale;
    }
  });
}

// --- batch norm: blocks of columns, by loops that the compiler vectorises ------------------------------

namespace {

// total[c] = the sum of term(row, c) over rows, in double, for the columns [begin, end).
template <class Term>
void sum_columns(Index rows, Index begin, Index end, float* total, Term term) {
  double sum[cols_per_block] = {};
  for (Index row = 0; row < rows; ++row) {
    for (Index c = begin; c < end; ++c) sum[c - begin] += term(row, c);
  }
  for (Index c = begin; c < end; ++c) total[c - begin] = static_cast<float>(sum[c - begin]);
}

template <class Real>
Real inverse_deviation(const BatchNorm<Real>& norm, Real variance) {
  return norm.eps_outside ? 1 / (std::sqrt(variance) + norm.eps) : 1 / std::sqrt(variance + norm.eps);
}

void forward_columns(const BatchNorm<float>& norm, Index begin, Index end, float* y) {
  const Index cols = norm.cols, n = norm.group_rows;
  for (Index group = 0; group < norm.rows / n; ++group) {
    const float* x = norm.x + group * n * cols;
    const Index first = group * cols + begin;
    float *mean = norm.mean + first, *variance = norm.variance + first, *rstd = norm.rstd + first;
    sum_columns(n, begin, end, mean, [&](Index row, Index c) { return x[row * cols + c]; });
    for (Index c = 0; c < end - begin; ++c) mean[c] /= static_cast<float>(n);
    sum_columns(n, begin, end, variance, [&](Index row, Index c) {
      const float centred = x[row * cols + c] - mean[c - begin];
      return centred * centred;
    });
    for (Index c = 0; c < end - begin; ++c) {
      variance[c] /= static_cast<float>(n);
      rstd[c] = inverse_deviation(norm, variance[c]);
    }
    for (Index row = 0; row < n; ++row) {
      for (Index c = begin; c < end; ++c) {
        float v = (x[row * cols + c] - mean[c - begin]) * rstd[c - begin];
        if (norm.gain != nullptr) v *= norm.gain[c];
        if (norm.bias != nullptr) v += norm.bias[c];
        y[(group * n + row) * cols + c] = v;
      }
    }
  }
  reference::forward_out_of_range(norm, begin, end, y);
}

void backward_columns(const BatchNorm<float>& norm, const NormGradients<float>& gradients, Index begin,
                      Index end) {
  const Index cols = norm.cols, n = norm.group_rows;
  for (Index group = 0; group < norm.rows / n; ++group) {
    const float *x = norm.x + group * n * cols, *dy = gradients.dy + group * n * cols;
    const float *mean = norm.mean + group * cols, *rstd = norm.rstd + group * cols;
    const auto normed = [&](Index row, Index c) { return (x[row * cols + c] - mean[c]) * rstd[c]; };
    float sum_x[cols_per_block], sum_dy[cols_per_block], sum_dyx[cols_per_block];
    sum_columns(n, begin, end, sum_x, normed);
    sum_columns(n, begin, end, sum_dy, [&](Index row, Index c) { return dy[row * cols + c]; });
    sum_columns(n, begin, end, sum_dyx,
                [&](Index row, Index c) { return dy[row * cols + c] * normed(row, c); });
    for (Index c = begin; c < end; ++c) {
      if (gradients.dgain != nullptr) gradients.dgain[c] += sum_dyx[c - begin];
      if (gradients.dbias != nullptr) gradients.dbias[c] += sum_dy[c - begin];
      const float gain = norm.gain != nullptr ? norm.gain[c] : 1;
      // Epsilon outside the root: the term along x̂ is (σ + eps)/σ times as large (kernels/simd/rows.h).
      const float sigma = 1 / rstd[c] - norm.eps;
      const float inv_sigma = !norm.eps_outside ? 1 : sigma > 0 ? 1 / (sigma * rstd[c]) : 0;
      const float proj = inv_sigma * gain * sum_dyx[c - begin] / static_cast<float>(n);
      const float mean_g = (gain * sum_dy[c - begin] - proj * sum_x[c - begin]) / static_cast<float>(n);
      for (Index row = 0; row < n; ++row) {
        float& dx = gradients.dx[(group * n + row) * cols + c];
        const float d = rstd[c] * ((gain * dy[row * cols + c] - normed(row, c) * proj) - mean_g);
        dx = (gradients.beta == 0 ? 0 : gradients.beta * dx) + d;
      }
    }
  }
}

using reference::backward_columns, reference::forward_columns;  // for double

}  // namespace

template <class Real>
void batch_norm_forward(const BatchNorm<Real>& norm, Real* y) {
  parallel_blocks(norm.cols, cols_per_block,
                  [&](Index begin, Index end) { forward_columns(norm, begin, end, y); });
}

template <class Real>
void batch_norm_backward(const BatchNorm<Real>& norm, const NormGradients<Real>& gradients) {
  parallel_blocks(norm.cols, cols_per_block,
                  [&](Index begin, Index end) { backward_columns(norm, gradients, begin, end); });
}

template <class Real>
void batch_norm_inference(const BatchNorm<Real>& norm, const Real* mean, const Real* variance, Real* y) {
  const Index cols = norm.cols;
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    Real factor[cols_per_block];
    for (Index c = begin; c < end; ++c) {
      factor[c - begin] =
          inverse_deviation(norm, variance[c]) * (norm.gain != nullptr ? norm.gain[c] : Real(1));
    }
    for (Index row = 0; row < norm.rows; ++row) {
      for (Index c = begin; c < end; ++c) {
        y[row * cols + c] = (norm.x[row * cols + c] - mean[c]) * factor[c - begin] +
                            (norm.bias != nullptr ? norm.bias[c] : Real(0));
      }
    }
  });
}

template void layer_norm_forward(const LayerNorm<float>&, float*);
template void layer_norm_forward(const LayerNorm<double>&, double*);
template void layer_norm_backward(const LayerNorm<float>&, const NormGradients<float>&);
template void layer_norm_backward(const LayerNorm<double>&, const NormGradients<double>&);
template void batch_norm_forward(const BatchNorm<float>&, float*);
template void batch_norm_forward(const BatchNorm<double>&, double*);
template void batch_norm_backward(const BatchNorm<float>&, const NormGradients<float>&);
template void batch_norm_backward(const BatchNorm<double>&, const NormGradients<double>&);
template void batch_norm_inference(const BatchNorm<float>&, const float*, const float*, float*);
template void batch_norm_inference(const BatchNorm<double>&, const double*, const double*, double*);
template void pointwise_norm_forward(const PointwiseNorm<float>&, float*);
template void pointwise_norm_forward(const PointwiseNorm<double>&, double*);
template void pointwise_norm_backward(const PointwiseNorm<float>&, const NormGradients<float>&);
template void pointwise_norm_backward(const PointwiseNorm<double>&, const NormGradients<double>&);
template void cross_entropy_forward(const CrossEntropy<float>&, float*);
template void cross_entropy_forward(const CrossEntropy<double>&, double*);
template void cross_entropy_backward(const CrossEntropy<float>&, float, float*, float);
template void cross_entropy_backward(const CrossEntropy<double>&, double, double*, double);

}  // namespace normscope
