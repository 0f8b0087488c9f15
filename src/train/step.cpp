#include "train/step.h"

#include <cmath>

namespace normscope {

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(norms.total); }

StepRunner::StepRunner(const RunConfig& config, std::span<const Token> train_text, bool dropout)
    : sampler_(train_text, config.model.context, static_cast<std::uint64_t>(config.train.seed)),
      dropout_stream_(static_cast<std::uint64_t>(config.train.seed), "dropout"),
      context_(config.model.context),
      batch_size_(config.train.batch_size),
      grad_accum_(config.train.grad_accum),
      dropout_(dropout),
      tokens_(static_cast<std::size_t>(batch_size_ * context_)),
      targets_(tokens_.size()) {}

void StepRunner::fill(Index step, Index micro) {
  sampler_.fill(step, micro * batch_size_, batch_size_, tokens_.data(), targets_.data());
}

const StepResult& StepRunner::compute(Model<float>& model, Index step, TapListener<float>* listener) {
  model.gradients.clear();
  const float share = 1.0f / static_cast<float>(grad_accum_);
  double loss = 0;
  for (Index micro = 0; micro < grad_accum_; ++micro) {
    fill(step, micro);
    Pass pass = last_batch();
    pass.training = dropout_;
    pass.dropout_stream = dropout_stream_.at(static_cast<std::uint64_t>(step));
    pass.first_sequence = micro * batch_size_;
    loss += model.loss_and_gradients(pass, share, listener);
  }
  result_.loss = static_cast<float>(loss / static_cast<double>(grad_accum_));
  measure_gradient(model.layout(), model.gradients, result_.norms);
  return result_;
}

std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const Model<float>& model,
                                         const GradientNorms& norms,
                                         const std::vector<WeightChange>* changes) {
  std::vector<ParameterRow> rows;
  const std::vector<Parameter>& parameters = model.layout().list();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (!p.trainable) continue;
    const double n = static_cast<double>(p.size), norm = norms.by_parameter[i];
    const WeightChange change =
        changes != nullptr ? (*changes)[i] : WeightChange{sum_squares(p.size, model.parameters.at(p)), 0};
    rows.push_back({.layer = p.layer,
                    .param = p.name,
                    .numel = p.size,
                    .rms = std::sqrt(change.before / n),
                    .grad_norm = norm,
                    .grad_norm_batch = config.grad_accum == 1 ? std::optional(norm) : std::nullopt,
                    .grad_rms = norm / std::sqrt(n),
                    .update_rms = std::sqrt(change.change / n)});
  }
  return rows;
}

}  // namespace normscope
