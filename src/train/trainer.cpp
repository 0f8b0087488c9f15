#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "config/dump.h"
#include "core/machine.h"
#include "data/ngram.h"
#include "logs/record.h"
#include "train/learning_rate.h"
#include "train/sampler.h"
#include "train/thread_choice.h"

namespace normscope {
namespace {

constexpr Index nonfinite_steps_in_a_row = 20;  // so many end a run that skips
constexpr Index sample_length = 1000;           // characters of sample.txt
constexpr double sample_temperature = 0.8;

// The larger number, or NaN if either is.
float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(a, b);
}

}  // namespace

// A step of the loop: what is due in it, then its results.
struct Trainer::Step {
  Index number;
  bool is_last, log_metrics, log_sites, evaluate, save;
  Stopwatch clock = {};
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
      statistics_(config.model),
      tokens_per_step_(config.tokens_per_step()) {
  initialise(config.model, model_.layout(), config.train.seed, model_.parameters);
  record_.params = model_.layout().count();
  record_.vocab = corpus.vocab.size();
  record_.corpus_hash = hex(corpus.hash);
  record_.ranks = ranks.size();
}

// --- the run ---

RunRecord Trainer::run(const std::atomic<bool>& stop, int max_threads_tried) {
  clock_ = {};
  begin();
  std::string_view ended = take_steps(stop, max_threads_tried);
  if (ended == status_done && folder_) ended = finish(stop);
  if (ended == status_diverged) {
    write_summary(status_diverged);
    add_ngrams(stop);
  }
  write_summary(ended);
  return record_;
}

std::string_view Trainer::take_steps(const std::atomic<bool>& stop, int max_threads_tried) {
  std::optional<ThreadChoice> threads;
  if (max_threads_tried > 1) threads.emplace(max_threads_tried);
  // A step whose evaluation is pending is not trained again.
  const Index first = record_.evaluation_is_pending() ? record_.steps : record_.steps + 1;
  for (Index number = first; number <= config_.train.steps; ++number) {
    Step step = plan(number);
    if (record_.evaluation_is_pending()) {  // fill in the last step of an earlier process
      fill_row(step, static_cast<float>(*record_.final_train_loss), *record_.unlogged_grad_norm);
      const Index before = std::max<Index>(1, number - 1);  // their mean stands for this step's time
      take_time(step, step_seconds_ / static_cast<double>(before));
    } else {
      if (!take(step)) return diverge(step);
      if (threads) threads->after_step(step.row.step_ms / 1e3);
    }
    if (step.evaluate) evaluate_model(step, stop);
    if (!std::isfinite(step.row.val_loss.value_or(0))) return diverge(step);
    keep_if_due();
    log_metrics(step);
    observer_.on_step(step.row, seconds_per_step_);
    const bool is_interrupted = ranks_.any(stop.load());
    if (step.save || is_interrupted) {
      save();
      write_summary(status_running);
    }
    if (is_interrupted) return status_interrupted;
  }
  return status_done;
}

// --- before the first step ---

bool Trainer::resume() {
  bool has_checkpoint = folder_ && folder_->has(checkpoint_file);
  ranks_.together([&] {
    if (!has_checkpoint) return;
    load_checkpoint(folder_->file(checkpoint_file), run_meta(), model_, optimizer_.moments, record_);
    if (record_.best_val_loss && !folder_->has(best_file)) {
      observer_.on_note(text("note: ", folder_->file(best_file),
                             " is missing; the best evaluation is chosen among those after step ",
                             record_.steps));
      record_.best_val_loss.reset();
      record_.best_step.reset();
    }
  });
  ranks_.broadcast(&has_checkpoint, sizeof has_checkpoint);
  if (has_checkpoint) send();
  return has_checkpoint;
}

Index Trainer::start_from(const Parent& parent) {
  ranks_.together([&] { load_parent(parent, model_, optimizer_.moments, record_); });
  send();
  return record_.history["parent"]["step"];
}

// Sends all that a checkpoint holds from the first rank, which alone has read it, to the others.
void Trainer::send() {
  const std::string figures = ranks_.broadcast_text(Json(kept_figures(record_)).dump());
  set_figures(checkpoint_file, Json::parse(figures).get<Metadata>(), record_);
  Moments<float>& moments = optimizer_.moments;
  for (std::vector<float>* numbers :
       {&model_.parameters.all(), &model_.running.values, &moments.first, &moments.second})
    ranks_.broadcast(numbers->data(), numbers->size() * sizeof(float));
}

// A new folder gets its config first, since one with logs and without a config is no run. In a folder that
// holds a run, the logs are opened and checked first, so that an Error about them changes nothing; then the
// summary is replaced, since a kill must not leave a summary of later steps than the logs have; then the logs
// are cut. A run that starts from another one has a checkpoint of step 0 before its config, so that one that
// is killed never goes on from random weights.
void Trainer::begin() {
  model_.branch_progress = config_.train.branch_progress(record_.steps);
  if (!folder_) return;
  const bool logs_layers = config_.log.layers_every > 0;
  const auto write_config = [&] { write_atomically(folder_->file(config_file), dump_text(config_)); };
  if (record_.steps == 0 && record_.history.contains("parent")) save();
  if (!folder_->has(config_file)) write_config();
  const auto has_log = [&](const char* file) { return folder_->has(file); };
  const char* const layer_files[] = {layers_file, params_file, heads_file};
  const bool has_logs = has_log(metrics_file) && (!logs_layers || std::ranges::all_of(layer_files, has_log));
  Json& since = record_.history["logged_since"];
  if (!has_logs || since.is_null()) since = record_.steps;
  metrics_log_.emplace(open_metrics(*folder_));
  if (logs_layers || folder_->has(layers_file)) layer_logs_.emplace(*folder_);
  const auto due = [&](bool Step::*planned) {
    return [this, planned, after = since.get<Index>()](Index step) {
      return step > after && plan(step).*planned;
    };
  };
  metrics_log_->check(record_.steps - record_.evaluation_is_pending(), 1, due(&Step::log_metrics));
  if (layer_logs_) {
    for (CsvWriter* log : layer_logs_->all()) log->check(record_.steps, LayerLogs::keys, due(&Step::log_sites));
  }
  const Json seconds = record_in(folder_->file(summary_file), "seconds");
  if (record_.steps > 0 && seconds.is_number()) earlier_seconds_ = seconds;
  write_summary(status_running);
  write_config();
  for (CsvWriter* log : open_logs()) log->cut();
  folder_->remove_kept(record_.steps);
  if (record_.steps == 0) keep_if_due();
  if (!logs_layers) layer_logs_.reset();
  // take_steps() adds the time of a step whose evaluation is pending.
  step_seconds_ = logged_seconds(*folder_, record_.steps - record_.evaluation_is_pending());
}

// --- a step ---

// Log rows are due at the first steps, at every multiple and at the last step; evaluations at the latter two.
Trainer::Step Trainer::plan(Index number) const {
  const bool last = number == config_.train.steps;
  const auto at_multiple = [&](Index every) { return every > 0 && number % every == 0; };
  const bool is_first = number <= std::max<Index>(1, config_.log.layers_first);
  const auto log_due = [&](Index every) { return last || at_multiple(every) || (every > 0 && is_first); };
  const bool evaluate = !corpus_.val.empty() && (last || at_multiple(config_.eval.every));
  return {.number = number,
          .is_last = last,
          .log_metrics = log_due(config_.log.every) || evaluate,
          .log_sites = log_due(config_.log.layers_every),
          .evaluate = evaluate,
          .save = !last && at_multiple(config_.checkpoint.every)};
}

// Computes a step and updates the model. Returns whether what it leaves is finite.
bool Trainer::take(Step& step) {
  compute(step);
  if (step.result->finite()) {
    step.changes = &optimizer_.update(++record_.updates, step.row.lr, step.row.clip_factor, model_.gradients,
                                      model_.parameters);
    model_.running.move(step.result->batch_moments);
    record_.consecutive_skips = 0;
  } else if (!skip(step)) {
    return false;
  }
  const auto without_sign = [](float x) { return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x; };
  const float hashed[2] = {without_sign(step.result->loss), without_sign(step.result->grad_norm())};
  record_.trajectory_hash = fnv1a(hashed, sizeof hashed, record_.trajectory_hash);
  record_.steps = step.number;
  record_.final_train_loss = step.result->loss;
  record_.final_val_loss.reset();
  const auto is_finite = [](const WeightChange& change) { return std::isfinite(change.change); };
  if (step.changes && !std::ranges::all_of(*step.changes, is_finite)) return false;
  observe_sites(step);
  take_time(step, step.clock.seconds());
  return true;
}

void Trainer::compute(Step& step) {
  statistics_.clear();
  model_.branch_progress = config_.train.branch_progress(step.number);
  step.result = &runner_.compute(record_.earlier_batches.value_or(0) + step.number,
                                 step.measures_sites() ? &statistics_ : nullptr);
  fill_row(step, step.result->loss, step.result->norms.total);
}

void Trainer::fill_row(Step& step, float loss, double grad_norm) const {
  step.row.step = step.number;
  step.row.tokens = step.number * tokens_per_step_;
  step.row.train_loss = loss;
  step.row.lr = learning_rate(config_.train, step.number);
  step.row.grad_norm = static_cast<float>(grad_norm);
  step.row.clip_factor = clip_factor(config_.train.grad_clip, grad_norm);
}

// Goes on without an update after a result that is not finite. False: the run may not, or not once more.
bool Trainer::skip(const Step& step) {
  if (config_.train.on_nonfinite == OnNonfinite::stop) return false;
  if (record_.consecutive_skips + 1 == nonfinite_steps_in_a_row) return false;
  ++record_.consecutive_skips;
  ++record_.skipped;
  observer_.on_note(text("step ", step.number,
                         ": the loss, the gradient or a batch moment is not finite; the update is skipped"));
  return true;
}

// Repeats the step with the weights as they are and every tap on, names the first tensor that is not finite,
// and logs the step in metrics.csv and, before an update, in layers.csv and heads.csv.
std::string_view Trainer::diverge(Step& step) {
  statistics_.clear();
  const StepResult& result = runner_.compute(record_.earlier_batches.value_or(0) + step.number, &statistics_);
  record_.first_nonfinite = first_nonfinite(statistics_, result.norms, model_.layout(), step.number);
  // Rows of layers.csv describe the weights before the update. If the update has been made, this pass used
  // the new weights, so its rows are not logged.
  const bool is_recorded = record_.steps == step.number;
  if (layer_logs_ && !is_recorded)
    layer_logs_->write(step.number, statistics_.rows(), {}, statistics_.head_rows());
  if (step.row.step_ms == 0) take_time(step, step.clock.seconds());
  step.log_metrics = true;
  log_metrics(step);
  return status_diverged;
}

void Trainer::observe_sites(const Step& step) {
  if (!step.measures_sites()) return;
  const std::vector<SiteRow> sites = statistics_.rows();
  if (step.number == 1) record_.branch_share = branch_share(sites);
  if (!step.log_sites) return;
  const auto params = parameter_rows(config_.train, model_, step.result->norms, step.changes);
  record_.growth = growth(sites);
  record_.grad_first_last = grad_first_last(params, config_.model.n_layer);
  observer_.on_sites(sites);
  if (layer_logs_) layer_logs_->write(step.number, sites, params, statistics_.head_rows());
}

// Enters the seconds of a step.
void Trainer::take_time(Step& step, double seconds) {
  step_seconds_ += seconds;
  seconds_per_step_ = seconds_per_step_ == 0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  step.row.seconds = step_seconds_;
  step.row.step_ms = seconds * 1e3;
  step.row.tokens_per_s = static_cast<double>(tokens_per_step_) / seconds;
}

// Sets the step's val_loss, unless interrupted: then it is made again after a resume. The best evaluation is
// chosen among those of the same windows; the last step's loss is that of the whole split.
void Trainer::evaluate_model(Step& step, const std::atomic<bool>& stop) {
  const auto loss_of = [&](Index batches) {
    return evaluate(model_, corpus_.val, config_.train.batch_size, batches, ranks_,
                    [&] { return ranks_.any(stop.load()); });
  };
  if (step.result) record_.unlogged_grad_norm = step.result->norms.total;
  const Index batches = config_.eval.compared_batches();
  std::optional<double> loss = loss_of(batches);
  const std::optional<double> best = record_.best_val_loss;
  if (loss && std::isfinite(*loss) && (!best || *loss < *best)) {
    record_.best_val_loss = loss;
    record_.best_step = step.number;
    if (folder_) save_model(folder_->file(best_file), run_meta(), step.number, model_);
  }
  if (loss && step.is_last && batches > 0) loss = loss_of(0);
  if (!loss) return;
  step.row.val_loss = loss;
  record_.unlogged_grad_norm.reset();
  if (!std::isfinite(*loss)) return;
  if (step.is_last) record_.final_val_loss = loss;
  observer_.on_evaluation(step.number, *loss);
}

void Trainer::keep_if_due() {
  if (!folder_ || !config_.checkpoint.keeps(record_.steps)) return;
  std::filesystem::create_directory(folder_->file(kept_folder));
  save_model(folder_->file(kept_file(record_.steps)), run_meta(), record_.steps, model_);
}

// Writes a row if it is due and complete. The largest loss and gradient norm since the last row go from step
// to step.
void Trainer::log_metrics(Step& step) {
  if (record_.evaluation_is_pending()) return;
  MetricsRow& row = step.row;
  row.train_loss_max = record_.train_loss_max = larger(record_.train_loss_max, row.train_loss);
  row.grad_norm_max = record_.grad_norm_max = larger(record_.grad_norm_max, row.grad_norm);
  if (!step.log_metrics) return;
  if (metrics_log_) write_metrics(*metrics_log_, row);
  record_.train_loss_max = record_.grad_norm_max = 0;
}

std::vector<CsvWriter*> Trainer::open_logs() {
  std::vector<CsvWriter*> logs;
  if (metrics_log_) logs.push_back(&*metrics_log_);
  if (layer_logs_) std::ranges::copy(layer_logs_->all(), std::back_inserter(logs));
  return logs;
}

void Trainer::save() {
  if (!folder_) return;
  for (CsvWriter* log : open_logs())
    log->sync();  // first: a resumed run expects the rows up to the checkpoint
  save_checkpoint(folder_->file(checkpoint_file), run_meta(), record_, model_, optimizer_.moments);
}

// --- after the last step ---

// Saves the finished run, then adds what is optional: a sample and n-gram losses, which may fail. A run
// without evaluations shows weights that give no finite logits only here, on its first characters.
std::string_view Trainer::finish(const std::atomic<bool>& stop) {
  const auto first_window = std::span(corpus_.train).first(config_.model.context + 1);
  if (corpus_.val.empty() && !std::isfinite(*evaluate(model_, first_window, 1))) {
    record_.first_nonfinite = {record_.steps, config_.model.n_layer + 1, name_of(Site::logits), "", false};
    return status_diverged;
  }
  save_model(folder_->file(model_file), run_meta(), record_.steps, model_);
  save();
  write_summary(status_running);
  write_sample(stop);
  add_ngrams(stop);
  return stop ? status_interrupted : status_done;
}

void Trainer::write_summary(std::string_view status) {
  record_.status = status;
  const Index tokens = record_.steps * tokens_per_step_;
  if (step_seconds_ > 0) record_.tokens_per_s = static_cast<double>(tokens) / step_seconds_;
  record_.seconds = earlier_seconds_ + clock_.seconds();
  if (folder_) write_record(folder_->file(summary_file), record_, config_.train);
}

void Trainer::write_sample(const std::atomic<bool>& stop) try {
  const Token start = default_prompt(corpus_.vocab);
  Sampler sampler(model_, {&start, 1}, {.temperature = sample_temperature, .seed = config_.train.seed});
  std::vector<Token> sample;
  while (std::ssize(sample) < sample_length && !stop) sample.push_back(sampler.next());
  if (!stop) write_atomically(folder_->file(sample_file), corpus_.vocab.decode(sample) + "\n");
} catch (const std::exception& error) {
  observer_.on_note(left_out(sample_file, error));
}

// Adds the losses of n-grams to the record.
void Trainer::add_ngrams(const std::atomic<bool>& stop) try {
  if (!folder_ || corpus_.val.size() < 2) return;
  const auto is_stopped = [&] { return stop.load(); };
  record_.ngrams =
      ngram_baselines(corpus_.train, corpus_.val, corpus_.vocab.size(), is_stopped).value_or(unknown_ngrams);
} catch (const std::exception& error) {
  observer_.on_note(left_out("the n-gram losses", error));
}

}  // namespace normscope
