// Batch norm and instance norm: each feature is normalised over the rows of a group.
//
//   shapes      x, y (N, C); gain, bias (1, C) or absent; mean and variance (C)
//   forward     y = gain x̂ + bias,  x̂ = (x - mean) rstd over the batch, or each sequence
//   backward    dx = rstd (g - mean(g) - x̂ mean(g x̂)) with g = gain dy;  dgain = sum dy x̂,  dbias = sum dy
//   saved       mean and rstd of each group and feature
//   source      Ioffe & Szegedy 2015 (arXiv 1502.03167), Ulyanov et al. 2016 (1607.08022)
#pragma once

#include <algorithm>

#include "autograd/tape.h"
#include "kernels/rows.h"

namespace normscope {

// Mean and variance of each feature (C).
template <class Real>
struct FeatureMoments {
  Real *mean = nullptr, *variance = nullptr;
};

// The variance that a statistic rstd = 1/sqrt(variance + eps), or 1/(sqrt(variance) + eps), was computed
// from.
template <class Real>
double variance_of(const BatchNorm<Real>& norm, double rstd) {
  const double sigma = 1 / rstd - norm.eps,
               variance = norm.eps_outside ? sigma * sigma : 1 / (rstd * rstd) - norm.eps;
  return std::max(variance, 0.0);
}

// The caller sets in `norm` how to normalise; shapes and pointers are set here. Batch norm writes its moments
// to `batch` if given, the variance unbiased.
template <class Real>
Var<Real> batch_norm(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain = {},
                     Var<Real> bias = {}, FeatureMoments<Real> batch = {}) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(norm.group_rows > 0 && x.rows % norm.group_rows == 0, "batch_norm", x.rows,
          " rows are not whole groups of ", norm.group_rows);
  const Index statistics = x.rows / norm.group_rows * x.cols;
  norm.rows = x.rows, norm.cols = x.cols;
  norm.x = x.data, norm.gain = gain.data, norm.bias = bias.data;
  norm.mean = tape.template save<Real>(statistics);
  norm.rstd = tape.template save<Real>(statistics);
  const Var<Real> y = tape.create(x.rows, x.cols);
  batch_norm_forward(norm, y.data);
  if (batch.mean != nullptr) {
    const double n = static_cast<double>(x.rows), unbiased = x.rows > 1 ? n / (n - 1) : 1;
    std::copy_n(norm.mean, x.cols, batch.mean);
    for (Index c = 0; c < x.cols; ++c) {
      batch.variance[c] = static_cast<Real>(variance_of(norm, norm.rstd[c]) * unbiased);
    }
  }
  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    batch_norm_backward(norm, {t.gradient(y).data, dx, beta, t.add_to(gain), t.add_to(bias)});
  });
  return y;
}

// Batch norm in eval mode, by the running statistics. Values only, no backward.
template <class Real>
Var<Real> batch_norm_inference(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain,
                               Var<Real> bias, FeatureMoments<Real> running) {
  require(!tape.recording(), "batchnorm", "evaluation by running statistics has no backward");
  norm.rows = x.rows, norm.cols = x.cols;
  norm.x = x.data, norm.gain = gain.data, norm.bias = bias.data;
  const Var<Real> y = tape.create(x.rows, x.cols);
  batch_norm_inference(norm, running.mean, running.variance, y.data);
  return y;
}

}  // namespace normscope
