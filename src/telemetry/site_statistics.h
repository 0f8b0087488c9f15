// Statistics of every site of the model and of every head over one step: the numbers of layers.csv and
// heads.csv.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/site.h"
#include "kernels/pointwise.h"

namespace normscope {

// One row of layers.csv, whose columns README defines. NaN where nothing was measured.
struct SiteRow {
  Place place;
  double mean, rms, abs_max;
  Index nonfinite;
  double grad_rms, grad_abs_max, grad_norm;
  Index grad_nonfinite;
  std::optional<double> branch_share = {};  // of attn_out and ffn_out beside a residual stream
};

// One row of heads.csv. Heads count from 1.
struct HeadRow {
  Index layer, head;
  double max_logit, entropy, first_share;
};

// A tensor that is not finite.
struct Nonfinite {
  Place place;
  bool in_gradient;
};

// Sums over a site's tensors.
struct SiteSums {
  TensorStats value, gradient;
  double branch_squares = 0, stream_squares = 0;  // of the two terms of a residual sum

  void operator+=(const SiteSums& other);
};

// Measures each tensor when its tap fires. Micro-batches add up: their elements count as those of one tensor.
class SiteStatistics : public TapListener<float> {
 public:
  SiteStatistics(Index n_layer, Index n_head);

  void clear();
  void on_value(Place place, const Matrix<float>& x) override;
  void on_gradient(Place place, const Matrix<float>& x) override;
  void on_branch(Place output, float alpha, const Matrix<float>& branch) override;
  void on_heads(int layer, std::span<const HeadStats> heads) override;

  // Sums of each site, in the order of places_of(), and of each head (L, H).
  const std::vector<SiteSums>& sites() const { return sites_; }
  const std::vector<HeadStats>& heads() const { return heads_; }
  // Adds those of a micro-batch.
  void add(std::span<const SiteSums> sites, std::span<const HeadStats> heads);

  // In the order of the model. Over several batches, norms are root mean squares.
  std::vector<SiteRow> rows(Index batches = 1) const;
  std::vector<HeadRow> head_rows() const;
  // The first value, else the last gradient: backward computes it first.
  std::optional<Nonfinite> first_nonfinite() const;

 private:
  SiteSums& at(Place place);

  const Index n_layer_, n_head_;
  const std::vector<Place> places_;
  std::vector<SiteSums> sites_;
  std::vector<HeadStats> heads_;
};

// The sites of a model of L blocks, in the order of layers.csv.
std::vector<Place> places_of(Index n_layer);

}  // namespace normscope
