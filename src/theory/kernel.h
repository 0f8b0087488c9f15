// The theory's letters, beside those of core/types.h. A kernel is a function of two positions t, s of a
// sequence: E x_t.x_s / C over the weights, or the same of gradients. Means over the texts are in it, so one
// kernel stands for every sequence. A norm over the batch needs that of two sequences as well: kernels then
// have 2T tokens, a sequence and another. In the limit of wide layers kernels are all that one layer tells
// the next (Neal 1996; Lee et al. 2018, arXiv 1711.00165; Yang 2019, arXiv 1910.12478).
#pragma once

#include <vector>

#include "core/types.h"

namespace normscope {

inline double real(Index n) { return static_cast<double>(n); }

// (T, T), symmetric; both triangles are stored.
struct Kernel {
  Kernel() = default;
  explicit Kernel(Index length) : size(length), values(length * length) {}
  // f(t, s), computed for s <= t.
  template <class F>
  Kernel(Index length, F f) : Kernel(length) {
    for (Index t = 0; t < size; ++t) {
      for (Index s = 0; s <= t; ++s) (*this)(t, s) = (*this)(s, t) = f(t, s);
    }
  }

  double& operator()(Index t, Index s) { return values[t * size + s]; }
  double operator()(Index t, Index s) const { return values[t * size + s]; }

  Kernel& operator*=(double factor) {
    for (double& v : values) v *= factor;
    return *this;
  }
  Kernel& operator*=(const Kernel& other) {  // element by element
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= other.values[i];
    return *this;
  }
  Kernel& operator+=(const Kernel& other) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
    return *this;
  }

  // The mean square of the elements of x.
  double mean_square() const {
    double trace = 0;
    for (Index t = 0; t < size; ++t) trace += (*this)(t, t);
    return trace / real(size);
  }

  // How alike tokens are, 1/T to 1: a mean over them does not even out what weights do to those that are.
  double likeness() const {
    double sum = 0;
    for (const double v : values) sum += v * v;
    const double trace = mean_square() * real(size);
    return sum / (trace * trace);
  }

  Index size = 0;
  std::vector<double> values;
};

// (rows, cols): f(t, s) less its means over t and over s.
template <class F>
std::vector<double> centred(Index rows, Index cols, F f) {
  std::vector<double> c(rows * cols), column(cols);
  for (Index t = 0; t < rows; ++t) {
    double* row = &c[t * cols];
    double sum = 0;
    for (Index s = 0; s < cols; ++s) sum += row[s] = f(t, s);
    for (Index s = 0; s < cols; ++s) column[s] += row[s] -= sum / real(cols);
  }
  for (Index t = 0; t < rows; ++t) {
    for (Index s = 0; s < cols; ++s) c[t * cols + s] -= column[s] / real(rows);
  }
  return c;
}

}  // namespace normscope
