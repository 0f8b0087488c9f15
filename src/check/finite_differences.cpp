// The whole model's gradient against central differences, tensor by tensor.
#include <algorithm>
#include <limits>

#include "check/test_model.h"

namespace normscope {
namespace {

constexpr double small = 1e-6;  // a small enough error of a gradient; a tenth of it ends the search for h
constexpr double steps[] = {1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9};  // of the length of W
constexpr std::size_t likeliest_first[] = {2, 3, 1, 4, 0, 5, 6, 7};

// A direction of length 1: half random, half that of the n numbers at g unless they are all 0.
std::vector<double> direction(Index n, const double* g, const std::string& name) {
  const RandomStream stream(1, "direction of " + name);
  std::vector<double> d(n);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = stream.normal(i);
  const double own = l2_norm(n, g);
  double random = l2_norm(n, d.data());
  if (dot(n, d.data(), g) < 0) random = -random;  // the two halves must not cancel
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = d[i] / random + (own > 0 ? g[i] / own : 0);
  const double length = l2_norm(n, d.data());
  for (double& x : d) x /= length;
  return d;
}

class Differences {
 public:
  Differences(Model<double>& model, const Pass& batch, const ParameterBlock<double>& gradients)
      : model_(model), batch_(batch), gradients_(gradients), pass_(tensors_of(model, batch)) {
    find_rounding(model, batch, noise_of_double, pass_);
    loss(masks_);
  }

  void compare(const Parameter& p, Worst& worst) {
    const double* g = gradients_.at(p);
    double* w = model_.parameters.at(p);
    const std::vector<double> d = direction(p.size, g, p.name);
    const double size = l2_norm(p.size, g), slope = dot(p.size, g, d.data());
    if (std::isnan(slope)) return worst.add(p.name, slope, small);
    // A tensor of zeros (rezero's scales at the start) still needs a step.
    const double length = std::max(l2_norm(p.size, w), 1e-3 * std::sqrt(static_cast<double>(p.size)));
    constexpr std::size_t count = std::size(steps);
    double found[count], least = INFINITY;
    for (const std::size_t i : likeliest_first) {
      bool kink = false;
      found[i] = central_difference(w, d, steps[i] * length, [&] {
        std::vector<bool> on;
        const double moved = loss(on);
        kink = kink || on != masks_;
        return moved;
      });
      if (kink) found[i] = NAN;
      least = std::min(least, std::abs(found[i] - slope));  // drops a NaN; where all are, infinity is left
      if (least <= small / 10 * size) break;
    }
    double limit = small * size + slope_rounding("grad." + p.name);
    if (least > limit) {
      // The longest step that agrees with all shorter ones up to rounding: with longer steps curvature
      // counts.
      const auto rounding = [&](std::size_t i) { return margin * pass_[0].rounding / (steps[i] * length); };
      std::size_t best = count - 1;
      while (best > 0 && std::abs(found[best - 1] - found[best]) <= 2 * rounding(best)) --best;
      if (best + 1 < count) {
        least = std::abs(found[best] - slope);
        limit += rounding(best) + std::abs(found[best] - found[best + 1]);
      } else if (!std::isnan(found[best])) {
        return;  // no two steps agree: the function is too rough for a verdict
      }
    }
    worst.add(p.name, least, limit, size);
  }

 private:
  // The possible effect of rounding on the tensor: that of the noise itself, if the noise swamps the tensor.
  double slope_rounding(const std::string& name) const {
    const Tensor& own = tensor_named(pass_, name);
    return (own.rounding > max_rounding * own.size() ? rounding_margin : margin) * own.rounding;
  }

  // `on`: which ReLUs of the FFN are, because a difference across their kink is no derivative. Units that are
  // 0 up to rounding (all tokens equal, with batch norm) count as off.
  double loss(std::vector<bool>& on) {
    SiteCopies<double> sites, *listener = model_.config().activation == Activation::relu ? &sites : nullptr;
    // Evaluation uses batch norm's running statistics; its gradient is that of the batch's own.
    const double found = norm_row(model_.config().norm).has_running
                             ? model_.loss_and_gradients(batch_, 1, listener)
                             : model_.loss(batch_, listener);
    for (const SiteCopy<double>& site : sites.values) {
      if (site.place.site != Site::ffn_hidden) continue;
      for (const double x : site.data) on.push_back(x > 1e-12);
    }
    return found;
  }

  // From the effect of the noise to that of rounding by at most four units in the last place.
  static constexpr double margin =
      rounding_margin * 4 * std::numeric_limits<double>::epsilon() / noise_of_double;

  Model<double>& model_;
  const Pass batch_;
  const ParameterBlock<double>& gradients_;
  std::vector<Tensor> pass_;  // at W itself; the loss first
  std::vector<bool> masks_;   // of ReLUs
};

}  // namespace

Result finite_difference_error(Model<double>& model, const Pass& batch,
                               const ParameterBlock<double>& gradients) {
  Differences differences(model, batch, gradients);
  Worst worst;
  for (const Parameter& p : model.layout().list()) {
    if (p.trainable) differences.compare(p, worst);
  }
  return worst.result(text("every tensor's gradient equals central differences (",
                           std::ssize(batch.tokens) / batch.context, " sequences of ", batch.context, ")"));
}

Outcome finite_differences(const Context& given) {
  TestModel<double> model(given, given.config.model);
  // Few tokens: the number of passes is that of the tensors, and the fewer ReLUs the fewer meet their kink.
  for (Index context = std::min<Index>(given.config.model.context, 8);; context /= 2) {
    const TestBatch batch(given, 16 / context, context);
    model.pass(batch.view());
    const ParameterBlock<double> gradients = model.gradients;
    const Result found = finite_difference_error(model, batch.view(), gradients);
    if (!std::isinf(found.error) || context <= 2) return found;
  }
}

}  // namespace normscope
