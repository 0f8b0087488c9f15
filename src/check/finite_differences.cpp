#include "check/finite_differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check/trial.h"

namespace normscope {
namespace {

constexpr double limit = 1e-6;
// The likeliest to be good first: the search stops at an error of a tenth of the limit.
constexpr double steps[] = {1e-4, 1e-5, 1e-3, 1e-6, 1e-2, 1e-7};

// Which units of the FFN are on: a difference across ReLU's kink is no derivative.
class Masks : public TapListener<double> {
 public:
  void on_value(Place place, const StoredMatrix<double>& value) override {
    if (place.site != Site::ffn_hidden) return;
    for (Index i = 0; i < value.size(); ++i) positive.push_back(value.data[i] > 0);
  }
  void on_gradient(Place, const StoredMatrix<double>&) override {}

  std::vector<bool> positive;
};

class Differences {
 public:
  Differences(Model<double>& model, const TokenBatch& batch, const ParameterBlock<double>& gradients)
      : model_(model), batch_(batch), gradients_(gradients) {
    loss_ = loss(masks_);
    for (const Parameter& p : model.layout().list()) {
      if (p.trainable) largest_ = std::max(largest_, l2_norm(p.size, gradient(p)));
    }
  }

  double error(const Parameter& p) {
    const double* g = gradient(p);
    double* w = model_.parameters.at(p);
    const std::vector<double> start(w, w + p.size), d = direction(p);
    const double size = l2_norm(p.size, g);
    const double slope = dot(p.size, g, d.data());
    // A tensor of zeros (rezero's scales at the start) still needs a step.
    const double length = std::max(l2_norm(p.size, w), 1e-3 * std::sqrt(static_cast<double>(p.size)));
    double least = std::numeric_limits<double>::infinity();
    for (const double step : steps) {
      const double h = step * length;
      double sides[2];
      bool same_masks = true;
      for (const int side : {0, 1}) {
        for (std::size_t i = 0; i < d.size(); ++i) w[i] = start[i] + (side == 0 ? -h : h) * d[i];
        Masks masks;
        sides[side] = loss(masks);
        same_masks = same_masks && masks.positive == masks_.positive;
      }
      if (!same_masks) continue;
      const double error = std::abs((sides[1] - sides[0]) / (2 * h) - slope) /
                           (size + 1e-7 * largest_ + 1e-9 * std::abs(loss_));
      least = std::min(least, error);  // drops a NaN; where all are, infinity is left
      if (least <= limit / 10) break;
    }
    std::copy(start.begin(), start.end(), w);
    return least;
  }

 private:
  bool relu() const { return model_.config().activation == Activation::relu; }
  const double* gradient(const Parameter& p) const { return gradients_.at(p); }

  std::vector<double> direction(const Parameter& p) const {
    const double* g = gradient(p);
    const RandomStream stream(1, "direction of " + p.name);
    std::vector<double> d(static_cast<std::size_t>(p.size));
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = stream.normal(i);
    const double own = l2_norm(p.size, g);
    double random = l2_norm(p.size, d.data());
    if (dot(p.size, d.data(), g) < 0) random = -random;  // the two halves must not cancel
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = d[i] / random + (own > 0 ? g[i] / own : 0);
    const double length = l2_norm(p.size, d.data());
    for (double& x : d) x /= length;
    return d;
  }

  double loss(Masks& masks) {
    Masks* listener = relu() ? &masks : nullptr;
    // Evaluation uses batch norm's running statistics; its gradient is that of the batch's own.
    return norm_row(model_.config().norm).has_running ? model_.loss_and_gradients(batch_, 1, {}, listener)
                                                      : model_.loss(batch_, listener);
  }

  Model<double>& model_;
  const TokenBatch batch_;
  double loss_ = 0, largest_ = 0;
  const ParameterBlock<double>& gradients_;
  Masks masks_;  // where W stands
};

}  // namespace

DifferenceError finite_difference_error(Model<double>& model, const TokenBatch& batch,
                                        const ParameterBlock<double>& gradients) {
  Differences differences(model, batch, gradients);
  Worst worst;
  for (const Parameter& p : model.layout().list()) {
    if (p.trainable) worst.add(differences.error(p), p.name);
  }
  return {worst.error, worst.place};
}

void prove_finite_differences(const Subject& subject) {
  const ModelConfig config = without_dropout(subject.config.model);
  Trial model(subject, config);
  // Few tokens: the number of passes is that of the tensors, and the fewer ReLUs the fewer meet their kink.
  Index context = std::min<Index>(config.context, 8);
  DifferenceError error;
  for (;; context /= 2) {
    const TrialBatch batch(subject, 16 / context, context);
    model.gradients.clear();
    model.loss_and_gradients(batch.view());
    const ParameterBlock<double> gradients = model.gradients;
    error = finite_difference_error(model, batch.view(), gradients);
    if (std::isfinite(error.worst) || context <= 2) break;
  }
  subject.report({text("every tensor's gradient equals central differences (", 16 / context, " sequences of ",
                       context, ")"),
                  error.worst, limit, error.tensor});
}

}  // namespace normscope
