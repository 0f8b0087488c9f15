// Exact means over softmax weights of Gaussian scores, by one-dimensional integrals.
//
// Weights A_i = e^{s_i} / sum_j e^{s_j}, s_i independent N(0, sigma^2), i = 1..n. From 1/Z^k = the integral
// of x^{k-1} e^{-xZ} / Gamma(k), with x = e^y,
//   phi(y) = E exp(-e^{s+y}),  h_k(y) = E e^{k(s+y)} exp(-e^{s+y}),
//   E sum A^k = n / Gamma(k) * integral of h_k phi^{n-1} dy,
//   E ln Z = integral of (exp(-e^y) - phi^n) dy  (Frullani).
#pragma once

namespace normscope {

struct SoftmaxMoments {
  double participation;  // Y = E sum A^2: 1/n of uniform weights, 1 of one that takes all
  double slope;          // Q = E [sum A^2 - 2 sum A^3 + (sum A^2)^2], of the softmax's Jacobian
  double entropy;        // nats
};
// From a table, within 1e-3; n >= 1.
SoftmaxMoments softmax_moments(double n, double sigma);

// gamma of weights whose second moments are e^{gamma sigma^2} to 1, equal weight against another: then their
// participation is Y. At most 1, which it is for small sigma.
double participation_exponent(double n, double participation);

// Q of weights of this participation, were they one large among equal small ones.
double slope_of(double n, double participation);

// Moments of two queries' weights A, A' when their scores of a key have correlation rho: the exponent of
// E sum A A' and, with P for sum A A', E sum A A' (1 - A - A' + P) over slope_of(). Given what the queries
// share, what they do not is noise under which a softmax responds less, by 1 - Y of that noise among the keys
// that still compete: 1/P of them. Within 15% of sampled scores for n <= 64, sigma <= 20.
struct SharedMoments {
  double exponent, slope;
};
SharedMoments shared_moments(double n, double sigma, double rho);

// Moments of the softmax of n scores, one of which, the `own`, is `shift` higher.
struct ShiftedSoftmax {
  double log_sum;                   // E ln Z
  double own, other;                // E A of the shifted one, of any other
  double own_square, other_square;  // E A^2
};
ShiftedSoftmax shifted_softmax(double n, double sigma, double shift);

}  // namespace normscope
