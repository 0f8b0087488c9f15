#include "train/trainer.h"

#include <filesystem>
#include <limits>

#include "config/dump.h"
#include "core/stopwatch.h"
#include "data/ngram.h"
#include "train/environment.h"
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
  bool is_last, log_metrics, log_sites, record_sites, evaluate, save;
  const StepResult* result = nullptr;
  const std::vector<WeightChange>* changes = nullptr;  // null: the update was skipped
  MetricsRow row = {};
};

Trainer::Trainer(const RunConfig& config, const Corpus& corpus, RunFolder* folder, TrainObserver& observer,
                 Communicator& ranks)
    : config_(config),
      corpus_(corpus),
      folder_(folder),
      observer_(observer),
      ranks_(ranks),
      model_(config.model, corpus.vocab.size(), config.train.gemm_mode()),
      optimizer_(config.train, model_.layout(), ranks),
      runner_(config, corpus.train, /*dropout=*/true, ranks),
      statistics_(shape_of(model_)),
      tokens_per_step_(config.tokens_per_step()) {
  initialise(config.model, model_.layout(), config.train.seed, model_.parameters);
  record_ = new_record(config, corpus, model_.layout(), folder ? folder->path() : "");
  record_.ranks = ranks.size();
}

// --- before the first step ---

// The first rank reads the checkpoint and sends the others their parts.
bool Trainer::resume() {
  Moments<float> all;
  if (is_shared() && folder_) all.first = all.second = model_.gradients.all();
  const bool found = ranks_.together(
      [&] { return folder_ != nullptr && read_checkpoint(is_shared() ? all : optimizer_.moments); });
  if (!ranks_.any(found)) return false;
  if (is_shared()) {
    ranks_.broadcast(static_cast<TrainProgress*>(&state_), sizeof(TrainProgress), 1);
    ranks_.broadcast(state_.recent);
    ranks_.broadcast(model_.parameters.all().data(), sizeof(float) * floats_per_line,
                     model_.layout().block_size() / floats_per_line);
    ranks_.broadcast(model_.running.values);
    optimizer_.scatter_moments(all, model_.gradients);
  }
  if (!state_.recent.empty()) recent_.from_numbers(state_.recent, config_.model.n_layer);
  return resumed_ = true;
}

bool Trainer::read_checkpoint(Moments<float>& moments) {
  const auto on_damage = [&](const std::string& note) {
    observer_.on_note(note);
    keep_ = Keep::nothing;  // the damaged checkpoint must not replace the sound previous one
  };
  const auto file = open_checkpoint(folder_->file(checkpoint_file), on_damage);
  if (!file) return false;
  state_ = load_checkpoint(*file, run_meta(), model_, moments);
  restore_best();
  return true;
}

// Makes best.safetensors that of the checkpoint's best step. A new best model is saved before the checkpoint
// that records it, so evaluate_model() keeps the last checkpoint's best model as best.previous.safetensors.
// If neither file is of the best step, the search for the best starts anew.
void Trainer::restore_best() {
  const std::string best = folder_->file_to_write(best_file).path, previous = previous_path(best);
  const auto is_best = [&](const std::string& path) {
    return state_.best_step > 0 && step_in(path) == state_.best_step;
  };
  if (!is_best(best) && is_best(previous)) {
    std::filesystem::rename(previous, best);
  } else if (!is_best(best)) {
    std::filesystem::remove(best);
    state_.best_val_loss.reset();
    state_.best_step = 0;
  }
  std::filesystem::remove(previous);
  saved_best_step_ = state_.best_step;
}

void Trainer::begin() {
  first_step_ = state_.step + 1;
  if (is_shared()) runner_.require_same_bits(model_);
  if (!folder_) return;
  invalidate_summary();
  if (!resumed_) restore_best();
  write_atomically(folder_->file_to_write(config_file), dump_text(config_));
  const auto last_step = resumed_ ? std::optional(state_.step) : std::nullopt;
  metrics_log_.emplace(open_metrics(*folder_, last_step));
  if (config_.log.layers_every > 0) {
    layer_logs_.emplace(*folder_, last_step);
  } else if (folder_->has(layers_file)) {
    LayerLogs(*folder_, last_step);  // drops the rows after the last step, as for every log
  }
}

// Deletes an old summary.json for a new run, or sets its status to `interrupted` for a resumed one, so that a
// kill cannot leave a `done` beside truncated logs.
void Trainer::invalidate_summary() {
  const std::string path = folder_->file(summary_file);
  if (!folder_->has(summary_file)) return;
  RunRecord old;
  if (!resumed_ || !read_record(path, old)) {
    std::filesystem::remove(path);
    return;
  }
  record_.seconds = old.seconds;
  if (old.status == status_interrupted) return;
  old.status = status_interrupted;
  old.first_nonfinite.reset();
  old.story.clear();
  write_record(folder_->file_to_write(summary_file), old);
}

// --- a step ---

// Log rows are due at step 1, and like evaluations at every multiple and at the last step.
Trainer::Step Trainer::plan(Index number) const {
  const bool last = number == config_.train.steps;
  const auto at_multiple = [&](Index every) { return every > 0 && number % every == 0; };
  const auto log_due = [&](Index every) { return last || at_multiple(every) || (every > 0 && number == 1); };
  const bool log_sites = log_due(config_.log.layers_every);
  return {.number = number,
          .is_last = last,
          .log_metrics = log_due(config_.log.every),
          .log_sites = log_sites,
          .record_sites = log_sites || recent_.should_record(),
          .evaluate = !corpus_.val.empty() && (last || at_multiple(config_.eval.every)),
          .save = !last && at_multiple(config_.checkpoint.every)};
}

void Trainer::compute(Step& step) {
  statistics_.clear();
  step.result =
      &runner_.compute(model_, step.number, step.record_sites ? &statistics_ : nullptr, step.log_metrics);
  step.row.step = step.number;
  step.row.tokens = step.number * tokens_per_step_;
  step.row.train_loss = step.result->loss;
  step.row.lr = learning_rate(config_.train, step.number);
  step.row.grad_norm = step.result->grad_norm();
  step.row.clip_factor = clip_factor(config_.train.grad_clip, step.result->norms.total);
}

// Updates the weights, or skips the update, or ends the run.
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
  step.row.noise_scale = step.result->noise_scale;
  recent_.add_norm(step.result->norms.total);
}

// Repeats the step, whose update did not happen, with every tap on. Reports the first tensor that is not
// finite, and adds the recorded steps to the log.
void Trainer::diverge(const Step& step) {
  record_.status = status_diverged;
  statistics_.clear();
  const StepResult& result = runner_.compute(model_, step.number, &statistics_);
  record_.first_nonfinite = first_nonfinite(statistics_, result.norms, model_.layout(), step.number);
  const std::vector<SiteRow> sites = statistics_.rows();
  record_.story = divergence_report(*record_.first_nonfinite, sites, recent_);
  if (!layer_logs_) return;
  for (const auto& earlier : recent_.steps()) layer_logs_->add_sites(earlier.step, earlier.sites);
  layer_logs_->layers.merge();  // atomically, because the last checkpoint needs some of the replaced rows
  layer_logs_->write(step.number, sites, {}, statistics_.head_rows());
}

void Trainer::observe_sites(const Step& step) {
  std::vector<SiteRow> sites = statistics_.rows();
  if (step.number == 1) {
    state_.branch_share = branch_share(sites);
    const double share = state_.branch_share.value_or(1);
    if (branches_too_small(config_.model, share)) observer_.on_small_branches(share);
  }
  if (step.log_sites) {
    const auto params = parameter_rows(config_.train, model_, step.result->norms, step.changes);
    record_.growth = growth(sites);
    record_.grad_first_last = grad_first_last(params, config_.model.n_layer);
    observer_.on_sites(sites);
    if (layer_logs_) layer_logs_->write(step.number, sites, params, statistics_.head_rows());
  }
  if (step.changes != nullptr) recent_.add(step.number, std::move(sites));
}

void Trainer::evaluate_model(Step& step) {
  const double loss = evaluate(model_, corpus_.val, config_.train.batch_size,
                               step.is_last ? 0 : config_.eval.batches, ranks_);
  step.row.val_loss = loss;
  if (step.is_last) record_.final_val_loss = loss;
  observer_.on_evaluation(step.number, loss);
  const double best = state_.best_val_loss.value_or(std::numeric_limits<double>::infinity());
  if (!(loss < best)) return;  // also if the loss is NaN
  const bool is_saved = state_.best_step > 0 && state_.best_step == saved_best_step_;
  state_.best_val_loss = loss;
  state_.best_step = step.number;
  if (!folder_) return;
  save_model(folder_->file_to_write(best_file), run_meta(), step.number, model_,
             is_saved ? Keep::previous : Keep::nothing);
}

void Trainer::save() {
  const Moments<float> all = is_shared() ? optimizer_.gather_moments(model_.gradients) : Moments<float>();
  if (!folder_) return;
  metrics_log_->sync();  // the checkpoint counts on the rows
  if (layer_logs_) {
    for (CsvWriter* log : {&layer_logs_->layers, &layer_logs_->params, &layer_logs_->heads}) log->sync();
  }
  state_.recent = recent_.to_numbers();
  save_checkpoint(folder_->file_to_write(checkpoint_file), run_meta(), state_, model_,
                  is_shared() ? all : optimizer_.moments, keep_);
  keep_ = Keep::previous;
  saved_best_step_ = state_.best_step;
  std::error_code ignored;  // restore_best() removes it otherwise
  std::filesystem::remove(previous_path(folder_->file(best_file)), ignored);
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
  add_environment(config_.train, record_);
}

// Writes the final model and a sample of its text.
void Trainer::write_results() {
  save_model(folder_->file_to_write(model_file), run_meta(), state_.step, model_);
  const Token start = default_prompt(corpus_.vocab);
  std::string sample;
  try {
    sample = sample_text(model_, corpus_.vocab, {&start, 1}, sample_length,
                         {.temperature = sample_temperature, .seed = config_.train.seed});
  } catch (const Error& error) {  // the last update made weights that give no finite logits
    observer_.on_note(text(error.what(), "; ", sample_file, " is left empty"));
  }
  write_atomically(folder_->file_to_write(sample_file), sample, "\n");
}

void Trainer::take_steps(const std::atomic<bool>& stop, int max_threads_tried) {
  const Index steps = config_.train.steps;
  ThreadChoice threads(max_threads_tried);
  for (Index number = first_step_; number <= steps && record_.status.empty(); ++number) {
    Step step = plan(number);
    const Stopwatch step_clock;
    compute(step);
    update(step);
    const bool diverged = record_.status == status_diverged;
    if (step.record_sites && !diverged) observe_sites(step);
    const double seconds = step_clock.seconds();
    step_seconds_ += seconds;
    seconds_per_step_ = seconds_per_step_ == 0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
    step.row.step_ms = seconds * 1e3;
    step.row.tokens_per_s = static_cast<double>(tokens_per_step_) / seconds;
    if (step.evaluate && !diverged) evaluate_model(step);
    if (metrics_log_ && (step.log_metrics || step.row.val_loss || diverged))
      write_metrics(*metrics_log_, step.row);
    if (diverged) break;
    observer_.on_step({number, steps, step.result->loss,
                       static_cast<double>(tokens_per_step_) / seconds_per_step_,
                       seconds_per_step_ * static_cast<double>(steps - number)});
    threads.after_step(seconds);
    if (ranks_.any(stop.load()) && !step.is_last) record_.status = status_interrupted;
    if (step.save || record_.status == status_interrupted) save();
  }
}

RunRecord Trainer::run(const std::atomic<bool>& stop, int max_threads_tried) {
  const Stopwatch clock;
  begin();
  take_steps(stop, max_threads_tried);
  if (record_.status.empty()) record_.status = status_done;
  const bool done = record_.status == status_done;
  if (folder_) {
    finish();
    if (done) write_results();
    record_.seconds = record_.seconds.value_or(0) + clock.seconds();
    write_record(folder_->file_to_write(summary_file), record_);
  }
  // The last checkpoint is written last, so a run that has it is complete; after an earlier kill the
  // checkpoint before it leads to the same results.
  if (done) save();
  return record_;
}

}  // namespace normscope
