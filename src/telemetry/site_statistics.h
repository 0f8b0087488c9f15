// Statistics of every site of the model and of every head over one step: what layers.csv and heads.csv hold.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/site.h"
#include "kernels/column_stats.h"

namespace normscope {

// One row of layers.csv, whose columns README defines. NaN where nothing was measured, nothing where a site
// has no such figure.
struct SiteRow {
  Place place;
  double mean, rms, abs_max;
  Index nonfinite;
  double grad_rms, grad_abs_max, grad_norm;
  Index grad_nonfinite;
  double kurtosis = 0;
  std::optional<double> dead = {}, cos_in = {}, branch_share = {};
};

// One row of heads.csv. Heads count from 1.
struct HeadRow {
  Index layer, head;
  double max_logit, entropy, first_share;
  double q_rms, k_rms, v_rms;  // as the dot products take them
};

struct ModelShape {
  Index n_layer, n_head, d_model, d_ff, vocab;
};

// The first tensor of a step that held a number that is not finite.
struct Nonfinite {
  Place place;
  bool in_gradient;
};

// Listens to a step's taps. Micro-batches of the step add up: their elements count as those of one tensor.
class SiteStatistics : public TapListener<float> {
 public:
  explicit SiteStatistics(const ModelShape& shape);

  void clear();
  void on_value(Place place, const Matrix<float>& x) override;
  void on_gradient(Place place, const Matrix<float>& x) override;
  void on_sum(Place branch_end, float alpha, const Matrix<float>& x, const Matrix<float>& branch) override;
  void on_heads(int layer, const Matrix<float>& qkv, std::span<const HeadStats> heads) override;

  // In the order of the model. Where several batches were heard, norms are root mean squares over them.
  std::vector<SiteRow> rows(Index batches = 1) const;
  std::vector<HeadRow> head_rows() const;
  const std::optional<Nonfinite>& first_nonfinite() const { return first_nonfinite_; }

  // All of it as bytes, and what such bytes tell counted as heard here: for what other processes hear.
  std::size_t byte_count() const {
    return entries_.size() * sizeof(Entry) + heads_.size() * sizeof(HeadStats) +
           column_squares_.size() * sizeof(double) + sizeof first_nonfinite_;
  }
  void to_bytes(char* bytes) const;
  void add_bytes(const char* bytes);

 private:
  struct Entry {
    Place place;
    Index first_column, width;  // where its columns are among all
    TensorStats value = {}, gradient = {};
    double cosines = 0;                             // between a block's input and output, summed over tokens
    double branch_squares = 0, stream_squares = 0;  // of the two terms of a residual sum

    void operator+=(const Entry& other);
  };
  Entry& at(Place place);
  void look_for_nonfinite(Place place, const TensorStats& stats, bool in_gradient);
  void measure();    // what is pending
  void end_block();  // counts what was measured

  // The first of a layer's 3C columns of q, k and v, which follow the columns of all sites.
  std::size_t qkv_column(Index layer) const {
    return column_squares_.size() - (shape_.n_layer - layer + 1) * 3 * shape_.d_model;
  }

  const ModelShape shape_;
  std::vector<Entry> entries_;
  std::vector<HeadStats> heads_;        // (L, H)
  std::vector<double> column_squares_;  // sums of squares over tokens, of every site's features
  std::optional<Nonfinite> first_nonfinite_;

  // State of the current forward pass: the block's tensors, the first `measured_` of which are measured, and
  // its residual sums; the block's input; the last tensor of the block before, usually a sum's first term.
  struct Sum {
    Place branch_end;
    float alpha;
    Matrix<float> x, branch;
  };
  std::vector<ColumnStats<float>> pending_;
  std::size_t measured_ = 0;
  Index unmeasured_ = 0;  // numbers of the others
  std::vector<Sum> pending_sums_;
  Matrix<float> block_input_;
  const float* last_stream_ = nullptr;
  double last_stream_squares_ = 0;
};

// The sites of a model of L blocks, in the order of layers.csv.
std::vector<Place> places_of(Index n_layer);

}  // namespace normscope
