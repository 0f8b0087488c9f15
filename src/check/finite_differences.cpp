// The whole model's gradient against central differences, tensor by tensor.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

constexpr double steps[] = {1e-4, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8};  // of the length of W

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
      : model_(model), batch_(batch), gradients_(gradients), loss_(loss(masks_)) {}

  void compare(const Parameter& p, Worst& worst) {
    const double* g = gradients_.at(p);
    double* w = model_.parameters.at(p);
    const std::vector<double> d = direction(p.size, g, p.name);
    const double size = l2_norm(p.size, g), slope = dot(p.size, g, d.data());
    if (std::isnan(slope)) return worst.add(p.name, slope, gradient_limit);
    // A tensor of zeros (rezero's scales at the start) still needs a step.
    const double length = std::max(l2_norm(p.size, w), 1e-3 * std::sqrt(static_cast<double>(p.size)));
    std::vector<std::pair<double, double>> found;  // a difference and what rounding of the loss may do to it
    for (const double step : steps) {
      bool kink = false;
      const double difference = central_difference(w, d, step * length, [&] {
        std::vector<bool> on;
        const double moved = loss(on);
        kink = kink || on != masks_;
        return moved;
      });
      if (kink || std::isnan(difference)) continue;
      found.push_back({difference, rounding_of_loss * std::abs(loss_) / (step * length)});
      const double error = std::abs(difference - slope), limit = gradient_limit * size + found.back().second;
      if (error <= limit) return worst.add(p.name, error, limit, std::max(size, limit));
    }
    // Two steps that agree contradict the gradient; others contradict each other.
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const double error = std::abs(found[i].first - slope);
        const double limit = gradient_limit * size + found[i].second + found[j].second;
        if (std::abs(found[i].first - found[j].first) <= std::max(limit, 0.1 * error))
          worst.add(p.name, error, limit, size);
      }
    }
  }

 private:
  static constexpr double gradient_limit = 1e-6, rounding_of_loss = 1e-14;

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

  Model<double>& model_;
  const Pass batch_;
  const ParameterBlock<double>& gradients_;
  std::vector<bool> masks_;  // of ReLUs, at W itself
  const double loss_;
};

}  // namespace

Result finite_difference_error(Model<double>& model, const Pass& batch,
                               const ParameterBlock<double>& gradients) {
  Differences differences(model, batch, gradients);
  Worst worst;
  for (const Parameter& p : model.layout().list()) differences.compare(p, worst);
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
