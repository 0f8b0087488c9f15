// Work on the rows of a matrix: norms of rows (layer, RMS, group norm) and of columns (batch, instance norm),
// pointwise functions in their place (DyT, Derf), cross-entropy. Drivers that cut the rows into blocks of
// fixed size, which threads share; kernels/arguments.h has the formulas.
#pragma once

#include "core/portable_math.h"
#include "core/scratch.h"
#include "kernels/pointwise.h"

namespace normscope {

constexpr Index row_block = 32;

// Call body(begin, end, of_block) for each block of rows of a norm. Each block gets zeroed sums of its own in
// `of_block`; when all blocks are done, these are added to `gradients` by sum_rows(), 32 blocks at a time. Sums of
// features have `width` numbers. Each thread zeroes its own sums: cache lines that another core has written
// are slow to load.
template <class Real, class Body>
void norm_backward_blocks(Index rows, Index width, const NormGradients<Real>& gradients, Body body) {
  using Gradients = NormGradients<Real>;
  struct Sum {
    Real* Gradients::*total;
    Index size;
  };
  const Sum sums[] = {{&Gradients::dgain, width},
                      {&Gradients::dbias, width},
                      {&Gradients::dalpha, 1},
                      {&Gradients::dshift, 1}};
  const Index blocks = block_count(rows, row_block);
  struct Partials;
  Real* partials = thread_scratch<Real, Partials>(blocks * 2 * (width + 1));
  parallel_blocks(rows, row_block, [&](Index begin, Index end) {
    Gradients of_block = gradients;
    Real* of_sum = partials;
    for (const auto& [total, size] : sums) {
      if (gradients.*total == nullptr) continue;
      of_block.*total = of_sum + begin / row_block * size;
      std::fill_n(of_block.*total, size, Real(0));
      of_sum += blocks * size;
    }
    body(begin, end, of_block);
  });
  for (const auto& [total, size] : sums) {
    if (gradients.*total == nullptr) continue;
    sum_rows(blocks, size, partials, gradients.*total);
    partials += blocks * size;
  }
}

template <class Real>
void layer_norm_forward(const LayerNorm<Real>& norm, Real* y) {
  parallel_blocks(norm.rows, row_block,
                  [&](Index begin, Index end) { kernels<Real>().layer_norm_forward(norm, begin, end, y); });
}

template <class Real>
void layer_norm_backward(const LayerNorm<Real>& norm, const NormGradients<Real>& gradients) {
  const Index width = norm.shared_gain ? norm.cols / norm.groups : norm.cols;
  norm_backward_blocks(norm.rows, width, gradients, [&](Index begin, Index end, const auto& of_block) {
    kernels<Real>().layer_norm_backward(norm, of_block, begin, end);
  });
}

// Batch norm of columns [begin, end) of one group of rows: they are transposed in scratch of the calling
// thread, so that a column becomes a row, and normalised by layer norm without gain and bias.
template <class Real>
struct NormColumns {
  const BatchNorm<Real>& norm;
  Index group, begin, end;
  Index stride = scratch_stride<Real>(norm.group_rows);  // between rows of the transpose

  // Call body(column, at, at_transposed) for each number of the columns.
  template <class Body>
  void for_each(Body body) const {
    for (Index row = 0; row < norm.group_rows; ++row) {
      const Index first = (group * norm.group_rows + row) * norm.cols;
      for (Index c = begin; c < end; ++c) body(c, first + c, (c - begin) * stride + row);
    }
  }

  template <class Tag>
  Real* scratch() const {
    return thread_scratch<Real, Tag>((end - begin) * stride);
  }

  // The transpose of these columns of x.
  template <class Tag>
  Real* transpose(const Real* x) const {
    Real* out = scratch<Tag>();
    for_each([&](Index, Index at, Index at_transposed) { out[at_transposed] = x[at]; });
    return out;
  }

  LayerNorm<Real> transposed_norm() const {
    const Index statistics = group * norm.cols + begin;
    return {.eps = norm.eps,
            .eps_outside = norm.eps_outside,
            .rows = end - begin,
            .cols = norm.group_rows,
            .stride = stride,
            .x = transpose<struct NormInput>(norm.x),
            .mean = norm.mean + statistics,
            .rstd = norm.rstd + statistics};
  }
};

// Call body(columns) for blocks of columns, all groups of a block in one thread.
template <class Real, class Body>
void blocks_of_columns(const BatchNorm<Real>& norm, Body body) {
  constexpr Index cols_per_block = 16;  // a cache line of floats
  parallel_blocks(norm.cols, cols_per_block, [&](Index begin, Index end) {
    for (Index group = 0; group < norm.rows / norm.group_rows; ++group) {
      body(NormColumns<Real>{norm, group, begin, end});
    }
  });
}

template <class Real>
void batch_norm_forward(const BatchNorm<Real>& norm, Real* y) {
  blocks_of_columns(norm, [&](const NormColumns<Real>& columns) {
    Real* normed = columns.template scratch<struct Normed>();
    layer_norm_forward(columns.transposed_norm(), normed);
    columns.for_each([&](Index c, Index at, Index at_transposed) {
      const Real scaled = norm.gain != nullptr ? normed[at_transposed] * norm.gain[c] : normed[at_transposed];
      y[at] = norm.bias != nullptr ? scaled + norm.bias[c] : scaled;
    });
  });
}

template <class Real>
void batch_norm_backward(const BatchNorm<Real>& norm, const NormGradients<Real>& gradients) {
  if (gradients.dbias != nullptr) sum_rows(norm.rows, norm.cols, gradients.dy, gradients.dbias);
  blocks_of_columns(norm, [&](const NormColumns<Real>& columns) {
    const LayerNorm<Real> transposed = columns.transposed_norm();
    const Real* dy = columns.template transpose<struct NormGradient>(gradients.dy);
    Real* out = columns.template scratch<struct Normed>();
    if (gradients.dgain != nullptr) {
      layer_norm_forward(transposed, out);
      for (Index row = 0; row < transposed.rows; ++row) {
        const Index first = row * columns.stride;
        gradients.dgain[columns.begin + row] +=
            static_cast<Real>(dot(transposed.cols, dy + first, out + first));
      }
    }
    layer_norm_backward(transposed, {.dy = dy, .dx = out});
    columns.for_each([&](Index c, Index at, Index at_transposed) {
      const Real before = gradients.beta == 0 ? Real(0) : gradients.beta * gradients.dx[at];
      gradients.dx[at] = before + (norm.gain != nullptr ? norm.gain[c] : Real(1)) * out[at_transposed];
    });
  });
}

// Batch norm in eval mode: y by the given mean and variance, (cols) each.
template <class Real>
void batch_norm_inference(const BatchNorm<Real>& norm, const Real* mean, const Real* variance, Real* y) {
  struct Factors;
  Real* factor = thread_scratch<Real, Factors>(norm.cols);
  for (Index c = 0; c < norm.cols; ++c) {
    const Real rstd =
        norm.eps_outside ? 1 / (std::sqrt(variance[c]) + norm.eps) : 1 / std::sqrt(variance[c] + norm.eps);
    factor[c] = rstd * (norm.gain != nullptr ? norm.gain[c] : Real(1));
  }
  parallel_for(norm.rows, [&](Index row) {
    const Real* x = norm.x + row * norm.cols;
    for (Index c = 0; c < norm.cols; ++c) {
      y[row * norm.cols + c] = (x[c] - mean[c]) * factor[c] + (norm.bias != nullptr ? norm.bias[c] : Real(0));
    }
  });
}

template <class Real>
void pointwise_norm_forward(const PointwiseNorm<Real>& norm, Real* y) {
  parallel_blocks(norm.rows, row_block, [&](Index begin, Index end) {
    kernels<Real>().pointwise_norm_forward(norm, begin, end, y);
  });
}

template <class Real>
void pointwise_norm_backward(const PointwiseNorm<Real>& norm, const NormGradients<Real>& gradients) {
  norm_backward_blocks(norm.rows, norm.cols, gradients, [&](Index begin, Index end, const auto& of_block) {
    kernels<Real>().pointwise_norm_backward(norm, of_block, begin, end);
  });
}

// loss[i] = logsumexp(row i) - row[target], nats.
template <class Real>
void cross_entropy_forward(const CrossEntropy<Real>& ce, Real* loss) {
  parallel_blocks(ce.rows, row_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* logits = ce.logits + row * ce.classes;
      kernels<Real>().softmax_stats(ce.classes, logits, ce.stats.max + row, ce.stats.sum + row);
      loss[row] =
          (ce.stats.max[row] - logits[ce.targets[row]]) + static_cast<Real>(portable::log(ce.stats.sum[row]));
    }
  });
}

// dlogits = beta*dlogits + (softmax(row) - onehot(target)) * scale.
template <class Real>
void cross_entropy_backward(const CrossEntropy<Real>& ce, Real scale, Real* dlogits, Real beta) {
  parallel_blocks(ce.rows, row_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      Real* d = dlogits + row * ce.classes;
      kernels<Real>().add_exponentials(ce.classes, ce.logits + row * ce.classes, ce.stats.max[row],
                                       scale / ce.stats.sum[row], d, beta);
      d[ce.targets[row]] -= scale;
    }
  });
}

}  // namespace normscope
