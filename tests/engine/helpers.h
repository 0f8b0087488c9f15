// What several tests share: random numbers, errors that NaN cannot pass, thread counts.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "kernels/simd.h"

namespace normscope::testing {

// A number for each type: accuracy that a float or a double kernel owes.
template <class Real>
constexpr double pick(double for_float, double for_double) {
  return sizeof(Real) == sizeof(float) ? for_float : for_double;
}

// mean + spread * n standard normals, named by what they are for.
template <class Real>
std::vector<Real> normals(Index n, std::string_view purpose, double spread = 1, double mean = 0) {
  const RandomStream stream(1, purpose);
  std::vector<Real> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Real>(mean + spread * stream.normal(i));
  }
  return values;
}

// The same normals rounded to floats, so that kernels of floats and of doubles compute on the same numbers.
template <class Real>
std::vector<Real> floats(Index n, std::string_view purpose, double spread = 1, double mean = 0) {
  const std::vector<float> values = normals<float>(n, purpose, spread, mean);
  return {values.begin(), values.end()};
}

// n whole numbers below `bound`.
inline std::vector<std::int32_t> integers(Index n, Index bound, std::string_view purpose) {
  const RandomStream stream(1, purpose);
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>(stream.below(i, bound));
  return values;
}

template <class Real>
std::vector<Real> nans(Index n) {
  return std::vector<Real>(static_cast<std::size_t>(n), std::numeric_limits<Real>::quiet_NaN());
}

template <class Real>
double norm(std::span<const Real> a) {
  double sum = 0;
  for (const Real x : a) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}
template <class Real>
double norm(const std::vector<Real>& a) {
  return norm(std::span<const Real>(a));
}

// The largest |a - b|; NaN, which is below no tolerance, if a number of a or b is NaN or the sizes differ.
template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::quiet_NaN();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst)) worst = difference;
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

// The same over the largest |b|.
template <class A, class B>
double scaled_error(const std::vector<A>& a, const std::vector<B>& b) {
  const double worst = largest_difference(a, b);
  return worst == 0 ? 0 : worst / largest_difference(b, std::vector<B>(b.size()));
}

// The outputs of a kernel by their names.
template <class Real>
using Outputs = std::map<std::string, std::vector<Real>>;

template <class Real>
bool same_bits(const std::vector<Real>& a, const std::vector<Real>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0;
}
template <class Real>
bool same_bits(const Outputs<Real>& a, const Outputs<Real>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && same_bits(x.second, y.second); });
}

template <class Real>
bool all_finite(const std::vector<Real>& a) {
  return std::all_of(a.begin(), a.end(), [](Real x) { return std::isfinite(x); });
}

// The nearest bf16, ties to even, by arithmetic instead of bits.
inline float nearest_bf16(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 8);  // 8 significant bits
  return static_cast<float>(std::nearbyint(x / unit) * unit);
}

template <class Real>
void activation(Activation kind, Index n, const Real* x, Real* y, Real* derivative) {
  kernels<Real>().activation(kind, n, x, y, derivative);
}

// f(x) and f'(x) of an activation by the C++ library's functions: the kernel of doubles.
struct ActivationAt {
  ActivationAt(Activation kind, double x) { activation(kind, 1, &x, &value, &derivative); }
  double value = 0, derivative = 0;
};

// Whether compute() gives the same bits at 1, 2, 3 and 4 threads. It returns a vector or Outputs.
template <class Compute>
bool same_bits_at_any_thread_count(Compute compute) {
  const auto at = [&](int threads) {
    const ThreadCount count(threads);
    return compute();
  };
  const auto alone = at(1);
  return same_bits(alone, at(2)) && same_bits(alone, at(3)) && same_bits(alone, at(4));
}

// Checks that a kernel of floats equals its naive twin, which is the kernel of doubles, and gives the same bits at any
// thread count: compute(float()) and compute(double()) return what they make of the same numbers.
template <class Compute>
void compare_with_twin(const Compute& compute, double tolerance) {
  const Outputs<float> fast = compute(float());
  const Outputs<double> naive = compute(double());
  for (const auto& [name, numbers] : fast) {
    CAPTURE(name);
    CHECK(scaled_error(numbers, naive.at(name)) <= tolerance);
  }
  for (const int threads : {1, 3}) {
    const ThreadCount count(threads);
    CHECK(same_bits(compute(float()), fast));
  }
}

}  // namespace normscope::testing
