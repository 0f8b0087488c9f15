#include "train/step.h"

#include <cmath>

#include "core/hash.h"
#include "kernels/simd.h"
#include "train/environment.h"

namespace normscope {

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(norms.total); }

StepRunner::StepRunner(const RunConfig& config, std::span<const Token> train_text, bool dropout,
                       Communicator& ranks)
    : sampler_(train_text, config.model.context, static_cast<std::uint64_t>(config.train.seed)),
      dropout_stream_(static_cast<std::uint64_t>(config.train.seed), "dropout"),
      context_(config.model.context),
      batch_size_(config.train.batch_size),
      grad_accum_(config.train.grad_accum),
      dropout_(dropout),
      tokens_(static_cast<std::size_t>(batch_size_ * context_)),
      targets_(tokens_.size()),
      ranks_(ranks),
      losses_(static_cast<std::size_t>(grad_accum_)),
      norms_(losses_.size()) {}

void StepRunner::fill(Index step, Index micro) {
  sampler_.fill(step, micro * batch_size_, batch_size_, tokens_.data(), targets_.data());
}

// Returns the loss; model.gradients holds the micro-batch's term of the step's gradient.
double StepRunner::compute_micro_batch(Model<float>& model, Index step, Index micro,
                                       TapListener<float>* listener) {
  model.gradients.clear();
  fill(step, micro);
  Pass pass = last_batch();
  pass.training = dropout_;
  pass.dropout_stream = dropout_stream_.at(static_cast<std::uint64_t>(step));
  pass.first_sequence = micro * batch_size_;
  return model.loss_and_gradients(pass, 1.0f / static_cast<float>(grad_accum_), listener);
}

// McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1: the squared gradient of B sequences has the
// expectation |G|² + S/B, so the mean over micro-batches and the whole batch estimate both without bias.
double StepRunner::noise_scale() const {
  const double n = static_cast<double>(grad_accum_), small = static_cast<double>(batch_size_),
               big = n * small;
  double of_small = 0;
  for (const double norm : norms_)
    of_small += n * norm * norm;  // a term is 1/n of its micro-batch's gradient
  const double of_big = result_.norms.total * result_.norms.total;
  return (of_small - of_big) / (1 / small - 1 / big) / ((big * of_big - small * of_small) / (big - small));
}

const StepResult& StepRunner::compute(Model<float>& model, Index step, SiteStatistics* statistics,
                                      bool measure_noise) {
  if (!sum_) {
    sum_.emplace(model.layout(), grad_accum_, ranks_);
    whole_.emplace(model.layout(), one_rank());
    heard_.emplace(shape_of(model));
  }
  measure_noise = measure_noise && grad_accum_ > 1;
  const std::size_t told_of_each = heard_->byte_count();
  if (statistics != nullptr) told_.resize(losses_.size() * told_of_each);
  const auto compute = [&](Index micro) {
    const auto at = static_cast<std::size_t>(micro);
    heard_->clear();
    losses_[at] = compute_micro_batch(model, step, micro, statistics != nullptr ? &*heard_ : nullptr);
    if (statistics != nullptr) heard_->to_bytes(told_.data() + at * told_of_each);
    if (!measure_noise) return;
    measure_gradient(*whole_, model.gradients, share_norms_);
    norms_[at] = share_norms_.total;
  };
  sum_->run(model.gradients, std::ref(compute));
  measure_gradient(sum_->shares(), model.gradients, result_.norms);

  if (measure_noise) ranks_.complete(norms_, sum_->cut());
  result_.noise_scale = measure_noise ? std::optional(noise_scale()) : std::nullopt;
  ranks_.complete(losses_, sum_->cut());
  double loss = 0;
  for (const double of_micro_batch : losses_) loss += of_micro_batch;
  result_.loss = static_cast<float>(loss / static_cast<double>(grad_accum_));
  if (statistics == nullptr) return result_;
  ranks_.complete(told_.data(), static_cast<Index>(told_of_each), sum_->cut());
  for (std::size_t at = 0; at < told_.size(); at += told_of_each) statistics->add_bytes(told_.data() + at);
  return result_;
}

void StepRunner::require_same_bits(Model<float>& model) {
  const double loss = compute_micro_batch(model, 1, 0, nullptr);
  const std::vector<float>& gradient = model.gradients.all();
  const std::uint64_t hash =
      fnv1a(gradient.data(), gradient.size() * sizeof(float), fnv1a(&loss, sizeof loss, fnv1a_basis));
  const std::uint64_t first = ranks_.gather(hash)[0];
  ranks_.together([&] {
    if (hash == first) return true;
    refuse("mpi", "this machine (", cpu_name(), ", ", isa_name(), ", ", blas_text(),
           ") does not compute the bits of the first rank's; use machines of one kind, or set NORMSCOPE_ISA "
           "and ",
           "OPENBLAS_CORETYPE alike on all");
  });
}

ModelShape shape_of(const Model<float>& model) {
  const ModelConfig& m = model.config();
  return {m.n_layer, m.n_head, m.d_model, m.d_ff, model.transformer.vocab_size()};
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
    const double ratio = std::sqrt(change.change / change.before);
    rows.push_back({.layer = p.layer,
                    .param = p.name,
                    .numel = p.size,
                    .rms = std::sqrt(change.before / n),
                    .grad_norm = norm,
                    .grad_norm_batch = config.grad_accum == 1 ? std::optional(norm) : std::nullopt,
                    .grad_rms = norm / std::sqrt(n),
                    .update_rms = std::sqrt(change.change / n),
                    .update_ratio = change.before == 0 ? std::nullopt : std::optional(ratio)});
  }
  return rows;
}

}  // namespace normscope
