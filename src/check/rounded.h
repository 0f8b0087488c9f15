// A pass in double that is rounded as an engine of another precision would.
#pragma once

#include <utility>

#include "logs/site_stats.h"

namespace normscope {

// Moves each number of each op's result and gradient by at most `most` of its size. Results move once more
// before the backward pass, since what a backward computes from them (such as a norm's normed input) is not
// rounded as in the forward pass.
struct Rounded : SiteCopies<double> {
  Rounded(double most, std::uint64_t draw, bool of_every_op = true)
      : relative(most), every_op(of_every_op), stream(draw, "rounded sites") {}
  void on_value(SiteId id, const Matrix<double>& x) override {
    if (!every_op) move(x);
    SiteCopies::on_value(id, x);
  }
  void on_result(const Matrix<double>& x) override {
    if (!every_op) return;
    move(x);
    results.push_back(x);
  }
  void on_result_gradient(const Matrix<double>& dx) override {
    for (const Matrix<double>& x : std::exchange(results, {})) move(x);
    if (every_op) move(dx);
  }
  void move(const Matrix<double>& x) {
    const RandomStream numbers = stream.at(moved++);
    for (Index i = 0; i < x.size(); ++i) x.data[i] *= 1 + relative * (2 * numbers.uniform(i) - 1);
  }
  const double relative;
  const bool every_op;  // else values at the sites alone
  const RandomStream stream;
  std::uint64_t moved = 0;
  std::vector<Matrix<double>> results;
};

}  // namespace normscope
