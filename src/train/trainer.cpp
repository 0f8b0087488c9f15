#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/dump.h"
#include "core/machine.h"
#include "data/ngram.h"
#include "logs/record.h"
#include "train/sampler.h"
#include "train/thread_choice.h"

namespace normscope {
namespace {

constexpr Index max_consecutive_skips = 20;
constexpr Index sample_length = 1000;  // characters of sample.txt
constexpr double sample_temperature = 0.8;

}  // namespace

// A step of the loop: what is due in it, then its results.
struct Trainer::Step {
  Index number;
  bool is_last, log_metrics, log_sites, evaluate, save;
  const StepResult* result = nullptr;
  const std::vector<WeightChange>* changes = nullptr;  // null: the update was skipped
  MetricsRow row = {};

  bool measures_sites() const { return log_sites || number == 1; }  // step 1: for branch_share
};

Trainer::Trainer(const RunConfig& config, const Corpus& corpus, RunFolder* folder, TrainObserver& observer,
                 Ranks& ranks)
    : config_(config),
      corpus_(corpus),
      folder_(folder),
      observer_(observer),
      ranks_(ranks),
      model_(config.model, corpus.vocab.size(), config.train.gemm_mode()),
      optimizer_(config.train, model_.layout()),
      runner_(config, model_, corpus.train, /*dropout=*/true, ranks),
      statistics_(config.model.n_layer, config.model.n_head),
      tokens_per_step_(config.tokens_per_step()) {
  initialise(config.model, model_.layout(), config.train.seed, model_.parameters);
  record_.params = model_.layout().count();
  record_.vocab = corpus.vocab.size();
  record_.corpus_hash = hex(corpus.hash);
  record_.ranks = ranks.size();
}

// --- before the first step ---

// The first rank reads the checkpoint and sends it to all.
bool Trainer::resume() {
  Moments<float>& moments = optimizer_.moments;
  ranks_.together([&] {
    if (folder_ && folder_->has(checkpoint_file))
      state_ = load_checkpoint(folder_->file(checkpoint_file), run_meta(), model_, moments);
    if (folder_ && state_.step >= config_.train.steps && !seconds_in(folder_->file(summary_file)))
      fail("resume", folder_->file(summary_file), ": is missing or damaged, though step ", state_.step,
           " is done; move the folder away to train the run again");
    return true;
  });
  ranks_.broadcast(&state_, sizeof state_);
  if (state_.step == 0) return false;
  for (std::vector<float>* numbers :
       {&model_.parameters.all(), &model_.running.values, &moments.first, &moments.second})
    ranks_.broadcast(numbers->data(), numbers->size() * sizeof(float));
  return true;
}

void Trainer::begin() {
  first_step_ = state_.step + 1;
  if (!folder_) return;
  remove_summary();
  write_atomically(folder_->file(config_file), dump_text(config_));
  const auto last_step = state_.step > 0 ? std::optional(state_.step) : std::nullopt;
  metrics_log_.emplace(open_metrics(*folder_, last_step));
  if (config_.log.layers_every > 0) {
    layer_logs_.emplace(*folder_, last_step);
  } else if (folder_->has(layers_file)) {
    LayerLogs(*folder_, last_step);  // drops the rows after the last step, as for every log
  }
}

// A kill must not leave the summary of earlier steps beside truncated logs.
void Trainer::remove_summary() {
  const std::string path = folder_->file(summary_file);
  if (state_.step > 0) record_.seconds = seconds_in(path);
  std::filesystem::remove(path);
}

// --- a step ---

// Log rows are due at step 1, and like evaluations at every multiple and at the last step.
Trainer::Step Trainer::plan(Index number) const {
  const bool last = number == config_.train.steps;
  const auto at_multiple = [&](Index every) { return every > 0 && number % every == 0; };
  const auto log_due = [&](Index every) { return last || at_multiple(every) || (every > 0 && number == 1); };
  return {.number = number,
          .is_last = last,
          .log_metrics = log_due(config_.log.every),
          .log_sites = log_due(config_.log.layers_every) ||
                       (config_.log.layers_every > 0 && number <= config_.log.layers_first),
          .evaluate = !corpus_.val.empty() && (last || at_multiple(config_.eval.every)),
          .save = !last && at_multiple(config_.checkpoint.every)};
}

void Trainer::compute(Step& step) {
  statistics_.clear();
  model_.branch_progress = config_.train.branch_progress(step.number);
  step.result = &runner_.compute(step.number, step.measures_sites() ? &statistics_ : nullptr);
  step.row.step = step.number;
  step.row.tokens = step.number * tokens_per_step_;
  step.row.train_loss = step.result->loss;
  step.row.lr = learning_rate(config_.train, step.number);
  step.row.grad_norm = step.result->grad_norm();
  step.row.clip_factor = clip_factor(config_.train.grad_clip, step.result->norms.total);
}

// Updates the weights, or skips the update. Ends the run where the loss or the new weights are not finite.
void Trainer::update(Step& step) {
  if (step.result->finite()) {
    step.changes = &optimizer_.update(step.number - state_.skipped, step.row.lr, step.row.clip_factor,
                                      model_.gradients, model_.parameters);
    model_.running.move(step.result->batch_moments);
    state_.consecutive_skips = 0;
  } else if (config_.train.on_nonfinite == OnNonfinite::stop ||
             ++state_.consecutive_skips >= max_consecutive_skips) {
    return diverge(step);
  } else {
    ++state_.skipped;
    observer_.on_note(text("step ", step.number, ": loss or gradient not finite; the update is skipped"));
  }
  const float hashed[2] = {step.result->loss, step.result->grad_norm()};
  state_.trajectory_hash = fnv1a(hashed, sizeof hashed, state_.trajectory_hash);
  state_.step = step.number;
  record_.final_train_loss = step.result->loss;
  const auto is_finite = [](const WeightChange& change) { return std::isfinite(change.change); };
  if (step.changes != nullptr && !std::ranges::all_of(*step.changes, is_finite)) diverge(step);
}

// Repeats the step with the weights as they are and every tap on, and finds the first tensor that is not
// finite.
void Trainer::diverge(const Step& step) {
  record_.status = status_diverged;
  statistics_.clear();
  const StepResult& result = runner_.compute(step.number, &statistics_);
  record_.first_nonfinite = first_nonfinite(statistics_, result.norms, model_.layout(), step.number);
  const bool is_updated = state_.step == step.number;  // then the rows are those of the weights before
  if (layer_logs_ && !is_updated)
    layer_logs_->write(step.number, statistics_.rows(), {}, statistics_.head_rows());
}

void Trainer::observe_sites(const Step& step) {
  const std::vector<SiteRow> sites = statistics_.rows();
  if (step.number == 1) state_.branch_share = branch_share(sites);
  if (step.log_sites) {
    const auto params = parameter_rows(config_.train, model_, step.result->norms, step.changes);
    record_.growth = growth(sites);
    record_.grad_first_last = grad_first_last(params, config_.model.n_layer);
    observer_.on_sites(sites);
    if (layer_logs_) layer_logs_->write(step.number, sites, params, statistics_.head_rows());
  }
}

// The best evaluation is the best of those on the same windows; the last one is of the whole split besides.
void Trainer::evaluate_model(Step& step) {
  const auto loss_of = [&](Index batches) {
    return evaluate(model_, corpus_.val, config_.train.batch_size, batches, ranks_);
  };
  const Index batches = config_.eval.compared_batches();
  double loss = loss_of(batches);
  if (std::isfinite(loss)) keep_if_best(step.number, loss);
  if (step.is_last && batches > 0) loss = loss_of(0);
  step.row.val_loss = loss;
  if (!std::isfinite(loss)) return diverge(step);
  if (step.is_last) record_.final_val_loss = loss;
  observer_.on_evaluation(step.number, loss);
}

void Trainer::keep_if_best(Index step, double val_loss) {
  if (state_.best_val_loss && val_loss >= *state_.best_val_loss) return;
  state_.best_val_loss = val_loss;
  state_.best_step = step;
  if (folder_) save_model(folder_->file(best_file), run_meta(), step, model_);
}

void Trainer::save() {
  if (!folder_) return;
  metrics_log_->sync();  // the checkpoint counts on the rows
  if (layer_logs_) {
    for (CsvWriter* log : {&layer_logs_->layers, &layer_logs_->params, &layer_logs_->heads}) log->sync();
  }
  save_checkpoint(folder_->file(checkpoint_file), run_meta(), state_, model_, optimizer_.moments);
}

// --- after the last step ---

void Trainer::finish() {
  record_.steps = state_.step;
  record_.best_val_loss = state_.best_val_loss;
  if (state_.best_val_loss) record_.best_step = state_.best_step;
  record_.skipped = state_.skipped;
  record_.branch_share = state_.branch_share;
  if (corpus_.val.size() >= 2) {
    const auto levels = ngram_baselines(corpus_.train, corpus_.val, corpus_.vocab.size());
    record_.unigram = levels[1].nats;
    record_.bigram = levels[2].nats;
    record_.trigram = levels[3].nats;
    record_.four_gram = levels[4].nats;
  }
  record_.trajectory_hash = hex(state_.trajectory_hash);
  const Index tokens = (state_.step - first_step_ + 1) * tokens_per_step_;
  record_.tokens_per_s = static_cast<double>(tokens) / step_seconds_;
}

// Writes the final model and a sample of its text, which in a run without evaluations is the first to show
// weights that give no finite logits.
void Trainer::write_results() {
  const Token start = default_prompt(corpus_.vocab);
  std::string sample;
  try {
    sample = sample_text(model_, corpus_.vocab, {&start, 1}, sample_length,
                         {.temperature = sample_temperature, .seed = config_.train.seed});
  } catch (const Error&) {
    record_.status = status_diverged;
    record_.first_nonfinite = {state_.step, config_.model.n_layer + 1, name_of(Site::logits), "", false};
    return;
  }
  save_model(folder_->file(model_file), run_meta(), state_.step, model_);
  write_atomically(folder_->file(sample_file), sample + "\n");
}

void Trainer::take_steps(const std::atomic<bool>& stop, int max_threads_tried) {
  const Index steps = config_.train.steps;
  std::optional<ThreadChoice> threads;
  if (max_threads_tried > 1) threads.emplace(max_threads_tried);
  for (Index number = first_step_; number <= steps && record_.status.empty(); ++number) {
    Step step = plan(number);
    const Stopwatch step_clock;
    compute(step);
    update(step);
    if (step.measures_sites() && !has_diverged()) observe_sites(step);
    const double seconds = step_clock.seconds();
    step_seconds_ += seconds;
    seconds_per_step_ = seconds_per_step_ == 0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
    step.row.step_ms = seconds * 1e3;
    step.row.tokens_per_s = static_cast<double>(tokens_per_step_) / seconds;
    if (step.evaluate && !has_diverged()) evaluate_model(step);
    if (metrics_log_ && (step.log_metrics || step.row.val_loss || has_diverged()))
      write_metrics(*metrics_log_, step.row);
    if (has_diverged()) break;
    observer_.on_step({number, steps, step.result->loss,
                       static_cast<double>(tokens_per_step_) / seconds_per_step_,
                       seconds_per_step_ * static_cast<double>(steps - number)});
    if (threads) threads->after_step(seconds);
    if (ranks_.any(stop.load()) && !step.is_last) record_.status = status_interrupted;
    if (step.save || record_.status == status_interrupted) save();
  }
}

RunRecord Trainer::run(const std::atomic<bool>& stop, int max_threads_tried) {
  const Stopwatch clock;
  begin();
  take_steps(stop, max_threads_tried);
  if (record_.status.empty()) record_.status = status_done;
  if (folder_) {
    if (record_.status == status_done) write_results();
    finish();
    record_.seconds = record_.seconds.value_or(0) + clock.seconds();
    write_record(folder_->file(summary_file), record_, config_.train);
  }
  // The last checkpoint is written last, so a run that has it is complete; after an earlier kill the
  // checkpoint before it leads to the same results.
  if (record_.status == status_done) save();
  return record_;
}

}  // namespace normscope
