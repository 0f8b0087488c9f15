#include "theory/softmax_moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace normscope {
namespace {

// The table's range. Moments follow sigma^2 below it and fall as 1/sigma above.
constexpr double smallest_sigma = 0.05, largest_sigma = 30;

// phi and h_1 to h_4 at y = first + j*step. The sums are trapezoids of analytic functions: their error falls
// as exp(-1/step), and is below 1e-7 at a step of 1/2 and of sigma.
struct ScoreIntegrals {
  double step, first;
  std::vector<std::array<double, 5>> at;  // [0]: phi

  // The scores lie `shift` higher than N(0, sigma^2); `reach`: how far beyond 7 sigma the grid goes.
  ScoreIntegrals(double sigma, double shift, double reach)
      : step(std::clamp(sigma, 2e-3, 0.5)), first(-7 * sigma - reach) {
    const int half = static_cast<int>(std::ceil(6.5 * sigma / step));
    const int points = static_cast<int>((14 * sigma + reach + 8) / step) + 1;
    std::vector<double> weight;
    double total = 0;
    for (int i = -half; i <= half; ++i) {
      const double z = sigma > 0 ? i * step / sigma : 0;
      weight.push_back(std::exp(-z * z / 2));
      total += weight.back();
    }
    std::vector<std::array<double, 5>> of_sum;  // the terms at y + s, which depend on the sum alone
    for (int k = -half; k < points + half; ++k) {
      const double x = std::exp(std::min(first + k * step + shift, 300.0));
      std::array<double, 5> terms{std::exp(-x)};
      for (std::size_t p = 1; p < 5; ++p) terms[p] = x > 700 ? 0 : terms[p - 1] * x;
      of_sum.push_back(terms);
    }
    at.resize(static_cast<std::size_t>(points));
    for (std::size_t j = 0; j < at.size(); ++j) {
      for (std::size_t i = 0; i < weight.size(); ++i) {
        for (std::size_t p = 0; p < 5; ++p) at[j][p] += weight[i] / total * of_sum[j + i][p];
      }
    }
  }
};

// Integrals over y for the scores of the terms a, of the terms b, and of n - 2 with phi; all of one step.
struct ManyScores {
  const ScoreIntegrals &a, &b;
  std::vector<double> others;  // phi^(n-2)

  ManyScores(const ScoreIntegrals& one, const ScoreIntegrals& second, double n) : a(one), b(second) {
    for (const auto& h : b.at) others.push_back(std::pow(h[0], n - 2));
  }
  // Of h_k of the first score and h_l of the second.
  double product(std::size_t k, std::size_t l) const {
    double sum = 0;
    for (std::size_t j = 0; j < others.size(); ++j) sum += a.at[j][k] * b.at[j][l] * others[j];
    return sum * a.step;
  }
  double log_sum() const {  // E ln Z
    double sum = 0;
    for (std::size_t j = 0; j < others.size(); ++j) {
      const double y = a.first + a.step * static_cast<double>(j);
      sum += std::exp(-std::exp(y)) - a.at[j][0] * b.at[j][0] * others[j];
    }
    return sum * a.step;
  }
};

// What a table interpolates, of logarithms: powers of sigma where it is small and where it is large.
struct Smooth {
  double exponent, slope, entropy;  // gamma; Q over slope_of(); entropy over ln n
};

Smooth smooth_at(const ScoreIntegrals& scores, double n, double sigma) {
  const ManyScores of(scores, scores, n);
  const double y = n * of.product(2, 0), square = sigma * sigma;
  // E sum A^2, A^3 and A^4, and of pairs A^2 A'^2.
  const double slope =
      y - n * of.product(3, 0) + n / 6 * of.product(4, 0) + n * (n - 1) / 6 * of.product(2, 2);
  const double entropy = of.log_sum() - square * (1 - y);  // E sum A s = sigma^2 (1 - Y) (Stein)
  return {std::log(participation_exponent(n, y) / square), std::log(slope / slope_of(n, y)),
          std::log(entropy / std::log(n))};
}

constexpr int sigmas = 56, counts = 20;
double table_sigma(int i) {
  return smallest_sigma * std::pow(largest_sigma / smallest_sigma, i / (sigmas - 1.0));
}
double table_count(int j) { return (j % 2 == 0 ? 2 : 3) * std::exp2(j / 2); }  // 2, 3, 4, 6, 8, ...

using Table = std::array<std::array<Smooth, counts>, sigmas>;

Table make_table() {
  Table table;
  for (int i = 0; i < sigmas; ++i) {
    const ScoreIntegrals scores(table_sigma(i), 0, 30);
    for (int j = 0; j < counts; ++j) table[i][j] = smooth_at(scores, table_count(j), table_sigma(i));
  }
  return table;
}

// `sigma` within the table.
Smooth interpolated(double n, double sigma) {
  static const Table table = make_table();
  const double row =
      std::log(sigma / smallest_sigma) / std::log(largest_sigma / smallest_sigma) * (sigmas - 1);
  const int i = std::min(static_cast<int>(row), sigmas - 2);
  int j = 0;
  while (j < counts - 2 && table_count(j + 1) < n) ++j;
  const double a = row - i, b = std::log(n / table_count(j)) / std::log(table_count(j + 1) / table_count(j));
  const auto mix = [&](double Smooth::*part) {
    return std::exp((1 - a) * ((1 - b) * table[i][j].*part + b * table[i][j + 1].*part) +
                    a * ((1 - b) * table[i + 1][j].*part + b * table[i + 1][j + 1].*part));
  };
  return {mix(&Smooth::exponent), mix(&Smooth::slope), mix(&Smooth::entropy)};
}

}  // namespace

double participation_exponent(double n, double participation) {
  const double y = std::clamp(participation, 1 / n, 1 - 1e-9);
  return std::log(y * (n - 1) / (1 - y));
}

double slope_of(double n, double y) { return y * (1 - 1 / n) * (1 - 1 / n) + (1 - y) / (n * n); }

SoftmaxMoments softmax_moments(double n, double sigma) {
  if (n < 2) return {1, 0, 0};
  const double within = std::clamp(sigma, smallest_sigma, largest_sigma),
               beyond = std::max(sigma / within, 1.0);
  const Smooth smooth = interpolated(n, within);
  const double gaussian = std::pow(std::min(sigma, largest_sigma), 2);
  const double y = 1 / (1 + (n - 1) * std::exp(-smooth.exponent * gaussian));
  return {1 - (1 - y) / beyond, smooth.slope * slope_of(n, y) / beyond,
          smooth.entropy * std::log(n) / beyond};
}

SharedMoments shared_moments(double n, double sigma, double rho) {
  double keys = n, response = 1;
  SoftmaxMoments m{};
  for (int pass = 0; pass < 3; ++pass) {
    response = (1 - softmax_moments(keys, sigma * std::sqrt(1 - rho)).participation) * keys / (keys - 1);
    m = softmax_moments(n, sigma * std::sqrt(rho) * response);
    keys = std::max(1 / m.participation, 2.0);
  }
  return {participation_exponent(n, m.participation),
          m.slope * response * response / slope_of(n, m.participation)};
}

ShiftedSoftmax shifted_softmax(double n, double sigma, double shift) {
  const double beyond = std::max(sigma / largest_sigma, 1.0), s = sigma / beyond;
  const ScoreIntegrals all(s, 0, 30 + shift), own(s, shift, 30 + shift);
  const ManyScores of(own, all, n);
  const double mean = of.product(1, 0);
  return {std::log(n) + beyond * (of.log_sum() - std::log(n)), mean, (1 - mean) / (n - 1), of.product(2, 0),
          of.product(0, 2)};
}

}  // namespace normscope
