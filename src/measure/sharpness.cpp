#include "measure/sharpness.h"

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "kernels/eigen.h"

namespace normscope {
namespace {

using Vector = std::vector<double>;  // laid out as the parameters; 0 where nothing is trained

double dot(const Vector& a, const Vector& b) { return normscope::dot(std::ssize(a), a.data(), b.data()); }
double length(const Vector& a) { return std::sqrt(dot(a, a)); }
// y = alpha*x + beta*y
void add(double alpha, const Vector& x, double beta, Vector& y) {
  axpby(std::ssize(x), alpha, x.data(), beta, y.data());
}

// product = H v over steps of h; model.parameters are the weights, which they are again at the end.
void multiply(Model<double>& model, const Pass& batch, const Vector& v, double h, Vector& product) {
  const Vector weights = model.parameters.all();
  for (const double step : {h, -h}) {
    add(step, v, 1, model.parameters.all());
    model.gradients.clear();
    model.loss_and_gradients(batch);
    add(0.5 / step, model.gradients.all(), step > 0 ? 0 : 1, product);
    model.parameters.all() = weights;
  }
  for (const Parameter& p : model.layout().list()) {
    if (!p.trainable) fill_zero(p.size, product.data() + p.offset);
  }
}

Vector random_direction(const ParameterLayout& layout) {
  Vector v(static_cast<std::size_t>(layout.block_size()));
  for (const Parameter& p : layout.list()) {
    const RandomStream stream(1, "direction of " + p.name);
    for (Index i = 0; i < p.size && p.trainable; ++i)
      v[p.offset + i] = stream.normal(static_cast<std::uint64_t>(i));
  }
  add(0, v, 1 / length(v), v);
  return v;
}

// Sets value and residual by H on the vectors so far, a tridiagonal matrix; `beside` ends with what leads on.
void project(const Vector& diagonal, const Vector& beside, Sharpness& found) {
  const std::size_t n = diagonal.size();
  Vector h(n * n);
  for (std::size_t i = 0; i < n; ++i) h[i * n + i] = diagonal[i];
  for (std::size_t i = 1; i < n; ++i) h[i * n + i - 1] = h[i * n - n + i] = beside[i - 1];
  found.products = static_cast<Index>(n);
  found.value = eigenvalues(found.products, h.data(), /*want_vectors=*/true).back();
  found.residual = beside.back() * std::abs(h.back());
}

}  // namespace

Sharpness sharpness(Model<double>& model, Pass batch) {
  constexpr double tolerance = 1e-3;
  constexpr Index most_products = 200;
  // Of the weights' length. A ReLU that has its kink within the step adds its whole jump over 2h: at 1e-9 one
  // in a million made a sharpness of 19 one of 3e5. Rounding is about 1e-5 of a product.
  const double h = 1e-11 * length(model.parameters.all());
  batch.eval_mode = false;
  Vector v = random_direction(model.layout()), before(v.size()), next(v.size());
  multiply(model, batch, v, 2 * h, before);
  multiply(model, batch, v, h, next);
  add(-1, next, 1, before);
  Sharpness found{.difference_error = length(before) / length(next)};

  // Vectors are not kept: as they lose their right angles to rounding, eigenvalues that were found are found
  // again, and the largest stays right (Paige 1976).
  Vector diagonal, beside;
  for (double beta = 0;;) {
    if (!diagonal.empty()) multiply(model, batch, v, h, next);
    const double alpha = dot(next, v);
    if (!std::isfinite(alpha)) fail("measure", "no sharpness: gradients at these weights are not finite");
    add(-alpha, v, 1, next);
    add(-beta, before, 1, next);
    beta = length(next);
    diagonal.push_back(alpha);
    beside.push_back(beta);
    project(diagonal, beside, found);
    if (found.residual <= tolerance * std::abs(found.value) || found.products == most_products) return found;
    add(1 / beta, next, 0, before);
    before.swap(v);
  }
}

}  // namespace normscope
