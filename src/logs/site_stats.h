// Statistics and copies of every site of the model: the numbers of layers.csv and heads.csv, and the tensors
// of an exchange file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/sites.h"
#include "kernels/pointwise.h"
#include "model/config.h"

namespace normscope {

// One row of layers.csv, whose columns src/logs/README.md defines. A value that was not measured is NaN.
struct SiteRow {
  SiteId id;
  double mean, rms, abs_max;
  Index nonfinite;
  double grad_rms, grad_abs_max, grad_norm;
  Index grad_nonfinite;
  std::optional<double> token_cosine = {};  // of a stream
  std::optional<double> branch_share = {};  // attn_out and ffn_out of models with a residual stream have one
};

// One row of heads.csv. Heads count from 1.
struct HeadRow {
  Index layer, head;
  double max_logit, entropy, first_share;
};

constexpr const char* loss_site = "loss";  // in FirstNonfinite: the loss, where every tensor is finite

// The first tensor of a step with an infinite or NaN element: a site's, or a parameter's.
struct FirstNonfinite {
  Index step = 0, layer = 0;
  std::string site, param;  // one of the two
  bool in_gradient = false;
};

// Sums over a site's tensors.
struct SiteSums {
  TensorStats value, gradient;
  double branch_squares = 0, stream_squares = 0;  // of the two terms of a residual sum
  double cosines = 0;                             // of sequences, summed

  void operator+=(const SiteSums& other);
};

// Measures each tensor when its tap fires. The elements of all micro-batches count as those of one tensor.
class SiteStatistics : public TapListener<float> {
 public:
  explicit SiteStatistics(const ModelConfig& config);

  void clear();
  void on_value(SiteId id, const Matrix<float>& x) override;
  void on_gradient(SiteId id, const Matrix<float>& x) override;
  void on_branch(SiteId output, float alpha, const Matrix<float>& branch) override;
  void on_heads(int layer, std::span<const HeadStats> heads) override;

  // Sums of each site, in the order of the model, and of each head (L, H).
  std::span<const SiteSums> sites() const { return sites_; }
  std::span<const HeadStats> heads() const { return heads_; }
  // Adds the sums of a micro-batch.
  void add(std::span<const SiteSums> sites, std::span<const HeadStats> heads);

  // Rows in the order of the model. Over several batches, norms are root mean squares.
  std::vector<SiteRow> rows(Index batches = 1) const;
  std::vector<HeadRow> head_rows() const;
  // The first site whose value is not finite; if all are, the site nearest to the loss whose gradient is not,
  // where the backward meets it first. The caller adds the step.
  std::optional<FirstNonfinite> first_nonfinite() const;

 private:
  SiteSums& at(SiteId id);

  const Index n_head_, context_, width_;
  std::vector<SiteId> ids_;  // in ascending order, which is that of the model and of layers.csv
  std::vector<SiteSums> sites_;
  std::vector<HeadStats> heads_;
};

// One site's tensor: (rows, cols), rows = B*T.
template <class Real>
struct SiteCopy {
  SiteId id;
  Index rows, cols;
  std::vector<Real> data;
};

// Copies of every site's value and gradient over one pass, for exchange files and for checks that compare two
// passes.
template <class Real>
class SiteCopies : public TapListener<Real> {
 public:
  void on_value(SiteId id, const Matrix<Real>& value) override { copy(id, value, values); }
  void on_gradient(SiteId id, const Matrix<Real>& gradient) override { copy(id, gradient, gradients); }

  // Values in forward order, gradients in backward order.
  std::vector<SiteCopy<Real>> values, gradients;

 private:
  static void copy(SiteId id, const Matrix<Real>& x, std::vector<SiteCopy<Real>>& copies) {
    copies.push_back({id, x.rows, x.cols, {x.data, x.data + x.size()}});
  }
};

}  // namespace normscope
