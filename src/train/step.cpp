#include "train/step.h"

#include <algorithm>

namespace normscope {

StepRunner::StepRunner(const RunConfig& config, Model<float>& model, std::span<const Token> train_text,
                       bool dropout, const Ranks& ranks)
    : sampler_(train_text, config.model.context, config.train.seed),
      dropout_stream_(config.train.seed, "dropout"),
      train_(config.train),
      dropout_(dropout),
      model_(model),
      ranks_(ranks),
      tokens_(train_.batch_size * config.model.context),
      targets_(tokens_.size()),
      result_(model.layout()),
      micro_statistics_(config.model) {
  result_.batch_moments.resize(train_.grad_accum * model.running.batch.size());
  require(train_.grad_accum >= ranks.size(), "step", train_.grad_accum, " micro-batches for ", ranks.size(),
          " ranks");
  if (train_.grad_accum > 1) sum_.emplace(model.layout().padded_size(), ranks);
}

void StepRunner::fill(Index step, Index micro) {
  const Index B = train_.batch_size;
  sampler_.fill(train_.fixed_batch ? 1 : step, micro * B, B, tokens_.data(), targets_.data());
}

// Compute the micro-batch's loss, and leave its term of the step's gradient in the model's gradients.
double StepRunner::compute_micro_batch(Index step, Index micro, TapListener<float>* listener) {
  model_.gradients.clear();
  fill(step, micro);
  Pass pass = last_batch();
  pass.with_dropout = dropout_;
  pass.dropout_stream = dropout_stream_.at(step);
  pass.first_sequence = micro * train_.batch_size;
  return model_.loss_and_gradients(pass, 1.0f / static_cast<float>(train_.grad_accum), listener);
}

// Add the statistics of this round's micro-batches in their order, whichever rank computed them.
void StepRunner::add_statistics(Index micro_batches, SiteStatistics& statistics) {
  const auto sites = micro_statistics_.sites();
  const auto heads = micro_statistics_.heads();
  ranks_.gather(sites, sites_);
  ranks_.gather(heads, heads_);
  for (Index i = 0; i < micro_batches; ++i)
    statistics.add(std::span(sites_).subspan(i * sites.size(), sites.size()),
                   std::span(heads_).subspan(i * heads.size(), heads.size()));
}

const StepResult& StepRunner::compute(Index step, SiteStatistics* statistics) {
  double loss = 0;
  const Index micro_batches = train_.grad_accum;
  for (Index first = 0; first < micro_batches; first += ranks_.size()) {
    const Index micro = first + ranks_.rank(), count = std::min<Index>(ranks_.size(), micro_batches - first);
    double mine = 0;
    micro_statistics_.clear();
    if (micro < micro_batches)
      mine = compute_micro_batch(step, micro, statistics != nullptr ? &micro_statistics_ : nullptr);
    if (sum_) sum_->add(model_.gradients.all(), first, count);
    ranks_.gather<double>({&mine, 1}, losses_);
    for (Index i = 0; i < count; ++i) loss += losses_[i];
    const std::span<const float> moments = model_.running.batch;
    ranks_.gather(moments, moments_);
    std::ranges::copy_n(moments_.begin(), count * std::ssize(moments),
                        result_.batch_moments.begin() + first * std::ssize(moments));
    if (statistics != nullptr) add_statistics(count, *statistics);
  }
  if (sum_) sum_->finish(model_.gradients.all());
  result_.loss = static_cast<float>(loss / static_cast<double>(micro_batches));
  result_.norms.measure(model_.gradients);
  return result_;
}

std::optional<double> evaluate(Model<float>& model, std::span<const Token> text, Index batch_size,
                               Index batches, const Ranks& ranks, const std::function<bool()>& is_stopped) {
  const Index characters = std::ssize(text), context = model.config().context;
  const std::vector<Window> windows = evaluation_windows(characters, context, batches * batch_size);
  const std::vector<std::span<const Window>> passes = window_groups(windows, batch_size);
  const Index count = std::ssize(passes);
  double total = 0;
  Index predicted = 0;
  std::vector<double> losses;  // of a round's passes, one a rank
  for (Index first = 0; first < count; first += ranks.size()) {
    if (is_stopped()) return std::nullopt;
    double mine = 0;
    if (const Index i = first + ranks.rank(); i < count) {
      const WindowBatch batch(text, passes[i]);
      mine = model.loss({batch.tokens, batch.targets, batch.context});
    }
    ranks.gather<double>({&mine, 1}, losses);
    for (Index i = first; i < std::min<Index>(first + ranks.size(), count); ++i) {
      const Index of_pass = std::ssize(passes[i]) * passes[i][0].length;
      total += losses[i - first] * static_cast<double>(of_pass);
      predicted += of_pass;
    }
  }
  return total / static_cast<double>(predicted);
}

FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms<float>& norms,
                               const ParameterLayout& layout, Index step) {
  if (std::optional<FirstNonfinite> site = statistics.first_nonfinite()) {
    site->step = step;
    return *site;
  }
  for (std::size_t i = 0; i < norms.by_part.size(); ++i) {
    if (!std::isfinite(norms.by_part[i]))
      return {step, layout[norms.parts[i].parameter].layer, "", norms.parts[i].name, true};
  }
  return {step, std::ssize(layout.blocks) + 1, loss_site, "", false};
}

std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const Model<float>& model,
                                         const GradientNorms<float>& norms,
                                         const std::vector<WeightChange>* changes) {
  std::vector<ParameterRow> rows;
  for (std::size_t i = 0; i < norms.parts.size(); ++i) {
    const ParameterPart& part = norms.parts[i];
    const Parameter& p = model.layout()[part.parameter];
    const double n = static_cast<double>(part.size), l2 = norms.by_part[i];
    const float* weights = model.parameters.all().data() + part.offset;
    const WeightChange change =
        changes != nullptr ? (*changes)[i] : WeightChange{sum_squares(part.size, weights), 0};
    rows.push_back({.layer = p.layer,
                    .param = part.name,
                    .numel = part.size,
                    .rms = std::sqrt(change.before / n),
                    .grad_norm = l2,
                    .grad_norm_batch = config.grad_accum == 1 ? std::optional(l2) : std::nullopt,
                    .grad_rms = l2 / std::sqrt(n),
                    .update_rms = std::sqrt(change.change / n),
                    .value = part.size == 1 ? std::optional<double>(*weights) : std::nullopt});
  }
  return rows;
}

}  // namespace normscope
