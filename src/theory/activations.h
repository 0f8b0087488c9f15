// What functions of one number do to kernels: features of the argument are Gaussian over the weights.
#pragma once

#include <functional>
#include <vector>

#include "kernels/pointwise.h"
#include "model/config.h"
#include "theory/kernel.h"

namespace normscope {

struct Response {
  Kernel value;              // E f(u_t) f(u_s), (u_t, u_s) Gaussian of the given kernel
  Kernel slope;              // E f'(u_t) f'(u_s): what a gradient's kernel is multiplied by
  std::vector<double> mean;  // (T) E f(u_t)
  std::vector<double> gain;  // (T) E f'(u_t) = E f(u_t) u_t / E u_t^2 (Stein)
  double excess = 0;         // excess kurtosis of f(u_t), t the last
};

// y[i] = f(x[i]), derivative[i] = f'(x[i]), i < n.
using PointwiseFunction = std::function<void(Index n, const double* x, double* y, double* derivative)>;

// A smooth function's, by its Hermite series: f(sqrt(q) z) = sum a_n(q) He_n(z)/sqrt(n!), and the kernel is
// sum a_n(q) a_n(q') rho^n (Mehler). An argument's excess kurtosis changes E f^2 and E f'^2 by the first term
// of the Gram-Charlier series, and the kernels in proportion.
Response smooth_response(const Kernel& argument, const PointwiseFunction& f, double excess = 0);

// y[i] = f(x[i]) of the config's activation, which has no gate.
PointwiseFunction activation_function(Activation activation);

// The response of the FFN's hidden layer to the kernel of its arguments. ReLU's is the arc-cosine kernel (Cho
// & Saul 2009).
Response hidden_response(Activation activation, const Kernel& argument);

}  // namespace normscope
