#include "train/step.h"

#include <numeric>

#include "core/hash.h"
#include "kernels/simd.h"
#include "train/environment.h"

namespace normscope {

StepRunner::StepRunner(const RunConfig& config, std::span<const Token> train_text, bool dropout,
                       Communicator& ranks)
    : sampler_(train_text, config.model.context, config.train.seed),
      dropout_stream_(config.train.seed, "dropout"),
      context_(config.model.context),
      batch_size_(config.train.batch_size),
      grad_accum_(config.train.grad_accum),
      dropout_(dropout),
      tokens_(batch_size_ * context_),
      targets_(tokens_.size()),
      ranks_(ranks),
      losses_(grad_accum_),
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
  pass.dropout_stream = dropout_stream_.at(step);
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
    micro_.emplace(shape_of(model));
  }
  measure_noise = measure_noise && grad_accum_ > 1;
  const std::size_t bytes = micro_->byte_count();
  if (statistics != nullptr) statistics_bytes_.resize(grad_accum_ * bytes);
  const std::vector<float>& moments = model.running.batch;
  result_.batch_moments.resize(grad_accum_ * moments.size());
  const auto compute = [&](Index i) {
    micro_->clear();
    losses_[i] = compute_micro_batch(model, step, i, statistics != nullptr ? &*micro_ : nullptr);
    std::ranges::copy(moments, result_.batch_moments.begin() + i * std::ssize(moments));
    if (statistics != nullptr) micro_->to_bytes(statistics_bytes_.data() + i * bytes);
    if (!measure_noise) return;
    measure_gradient(*whole_, model.gradients, term_norms_);
    norms_[i] = term_norms_.total;
  };
  sum_->run(model.gradients, std::ref(compute));
  measure_gradient(sum_->shares(), model.gradients, result_.norms);

  if (measure_noise) ranks_.complete(norms_, sum_->cut());
  result_.noise_scale = measure_noise ? std::optional(noise_scale()) : std::nullopt;
  ranks_.complete(losses_, sum_->cut());
  ranks_.complete(result_.batch_moments.data(), moments.size() * sizeof(float), sum_->cut());
  const double loss = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  result_.loss = static_cast<float>(loss / static_cast<double>(grad_accum_));
  if (statistics == nullptr) return result_;
  ranks_.complete(statistics_bytes_.data(), bytes, sum_->cut());
  for (Index i = 0; i < grad_accum_; ++i) statistics->add_bytes(statistics_bytes_.data() + i * bytes);
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

double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches,
                Communicator& ranks) {
  const Index characters = std::ssize(text), context = model.config().context;
  const std::vector<Window> windows = evaluation_windows(characters, context, batches * batch_size);
  const std::vector<std::span<const Window>> passes = window_groups(windows, batch_size);
  const std::vector<Index> cut = even_cut(std::ssize(passes), ranks.size());
  std::vector<double> losses(passes.size());
  for (Index i = cut[ranks.rank()]; i < cut[ranks.rank() + 1]; ++i) {
    const WindowBatch batch(text, passes[i]);
    losses[i] = model.loss({batch.tokens, batch.targets, batch.context});
  }
  ranks.complete(losses, cut);

  double total = 0;
  Index predicted = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Index characters_of_pass = std::ssize(passes[i]) * passes[i][0].length;
    total += losses[i] * static_cast<double>(characters_of_pass);
    predicted += characters_of_pass;
  }
  return total / static_cast<double>(predicted);
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
