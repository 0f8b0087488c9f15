// Statistics of every site of the model over one step: what layers.csv holds.
#pragma once

#include <optional>
#include <vector>

#include "autograd/tape.h"
#include "core/site.h"
#include "kernels/pointwise.h"

namespace normscope {

// One row of layers.csv. NaN where nothing was measured.
struct SiteRow {
  Place place;
  double mean, rms, abs_max;
  Index nonfinite;
  double grad_rms, grad_abs_max, grad_norm;
  Index grad_nonfinite;
};

// The first tensor of a step that held a number that is not finite.
struct Nonfinite {
  Place place;
  bool in_gradient;
};

// Listens to a step's taps. Micro-batches of the step add up: their elements count as those of one tensor.
class SiteStatistics : public TapListener<float> {
 public:
  explicit SiteStatistics(Index n_layer);

  void clear();
  void on_value(Place place, const Matrix<float>& x) override { add(place, x, &Entry::value); }
  void on_gradient(Place place, const Matrix<float>& x) override { add(place, x, &Entry::gradient); }

  // In the order of the model. Where several batches were heard, norms are root mean squares over them.
  std::vector<SiteRow> rows(Index batches = 1) const;
  const std::optional<Nonfinite>& first_nonfinite() const { return first_nonfinite_; }

  // All of it as bytes, and what such bytes tell counted as heard here: for what other processes hear.
  std::size_t byte_count() const { return entries_.size() * sizeof(Entry) + sizeof first_nonfinite_; }
  void to_bytes(char* bytes) const;
  void add_bytes(const char* bytes);

 private:
  struct Entry {
    Place place;
    TensorStats value, gradient;
  };
  void add(Place place, const Matrix<float>& x, TensorStats Entry::*part);

  std::vector<Entry> entries_;
  std::optional<Nonfinite> first_nonfinite_;
};

// The sites of a model of L blocks, in the order of layers.csv.
std::vector<Place> places_of(Index n_layer);

}  // namespace normscope
