#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "config/dump.h"
#include "core/stopwatch.h"
#include "data/ngram.h"
#include "kernels/elementwise.h"
#include "train/environment.h"
#include "train/evaluation.h"
#include "train/sampler.h"
#include "train/schedule.h"
#include "train/summary.h"

namespace normscope {
namespace {

constexpr Index max_consecutive_skips = 20;
constexpr Index sample_length = 1000;  // characters of sample.txt
constexpr double sample_temperature = 0.8;

}  // namespace

struct Trainer::Logs {
  CsvWriter metrics;
  std::optional<CsvWriter> layers, params;

  void truncate_after(Index step) {
    metrics.truncate_after(step);
    if (layers) layers->truncate_after(step);
    if (params) params->truncate_after(step);
  }
  // Rows that a checkpoint counts on must be on the disk before it is.
  void sync() {
    metrics.sync();
    if (layers) layers->sync();
    if (params) params->sync();
  }
};

Trainer::Trainer(const RunConfig& config, const Corpus& corpus, RunFolder& folder, TrainObserver& observer)
    : config_(config),
      corpus_(corpus),
      folder_(folder),
      observer_(observer),
      model_(config.model, corpus.vocab.size(), gemm_provider(config.train)),
      optimizer_(config.train, model_.layout()),
      runner_(config, corpus.train),
      statistics_(config.model.n_layer) {
  initialise(config.model, model_.layout(), static_cast<std::uint64_t>(config.train.seed), model_.parameters);
  summary_.params = model_.layout().count();
  summary_.vocab = corpus.vocab.size();
}

bool Trainer::resume() {
  const std::string current = folder_.file(checkpoint_file), previous = previous_path(current);
  std::optional<SafetensorsFile> file;
  for (const std::string& path : {current, previous}) {
    if (file || !std::filesystem::exists(path)) continue;
    try {
      file.emplace(path);
      if (!file->has_checksum()) fail("safetensors", path, ": has no checksum; expected one in a checkpoint");
    } catch (const Error& error) {  // a damaged checkpoint has an older one beside it
      file.reset();
      if (path == previous || !std::filesystem::exists(previous)) throw;
      observer_.on_note(text(error.what(), "; using ", previous, " instead"));
      keep_ = Keep::nothing;  // the damaged one may not take the place of the sound one
    }
  }
  if (!file) return false;
  state_ = load_checkpoint(*file, facts(), model_, optimizer_);
  if (!state_.recent.empty()) recent_.from_numbers(state_.recent, config_.model.n_layer);
  settle_best();
  resumed_ = true;
  return true;
}

// A new best is written at once, the checkpoint that tells of it later: until then the best of the last
// checkpoint is kept beside it. Whoever goes on from that checkpoint, and perhaps otherwise than before, goes
// on from its best too; where that is gone, the best of the steps to come counts.
void Trainer::settle_best() {
  const std::string best = folder_.file_to_write(best_file), kept = previous_path(best);
  const auto holds_it = [&](const std::string& path) {
    return state_.best_step > 0 && step_in(path) == state_.best_step;
  };
  if (!holds_it(best) && holds_it(kept)) {
    std::filesystem::rename(kept, best);
  } else if (!holds_it(best)) {
    std::filesystem::remove(best);
    state_.best_val_loss.reset();
    state_.best_step = 0;
  }
  std::filesystem::remove(kept);
  saved_best_step_ = state_.best_step;
}

// Rows and evaluations come at step 1 (logs only), at every multiple, and at the last step.
bool Trainer::due(Index step, Index every) const {
  return every > 0 && (step == 1 || step % every == 0 || step == config_.train.steps);
}

double Trainer::evaluate_now(bool whole) {
  if (whole || config_.eval.batches == 0)
    return evaluate_whole(model_, corpus_.val, config_.train.batch_size);
  const std::vector<Window> windows =
      evaluation_windows(static_cast<Index>(corpus_.val.size()), config_.model.context,
                         config_.eval.batches * config_.train.batch_size);
  return evaluate(model_, corpus_.val, windows, config_.train.batch_size);
}

void Trainer::after_evaluation(double val_loss) {
  observer_.on_evaluation(state_.step, val_loss);
  const double best = state_.best_val_loss.value_or(std::numeric_limits<double>::infinity());
  if (!(val_loss < best)) return;  // nor is a loss that is not finite
  const bool saved = state_.best_step > 0 && state_.best_step == saved_best_step_;
  state_.best_val_loss = val_loss;
  state_.best_step = state_.step;
  save_model(folder_.file_to_write(best_file), facts(), state_.step, model_,
             saved ? Keep::previous : Keep::nothing);
}

// With layers_every 0 the logs of layers and parameters are not written, but those that are there end at the
// step at which the run goes on, as every log does.
Trainer::Logs Trainer::open_logs() {
  const auto how = resumed_ ? CsvWriter::Open::append : CsvWriter::Open::create;
  const bool sites = config_.log.layers_every > 0;
  Logs logs{open_metrics(folder_, how), std::nullopt, std::nullopt};
  if (sites || folder_.has(layers_file)) logs.layers.emplace(open_layers(folder_, how));
  if (sites || folder_.has(params_file)) logs.params.emplace(open_params(folder_, how));
  logs.truncate_after(state_.step);
  if (!sites) {
    logs.layers.reset();
    logs.params.reset();
  }
  return logs;
}

// What a skipped update did to each parameter.
std::vector<WeightChange> Trainer::no_change() const {
  std::vector<WeightChange> changes;
  for (const Parameter& p : model_.layout().list())
    changes.push_back({sum_squares(p.size, model_.parameters.at(p)), 0});
  return changes;
}

// Appends the step's rows to layers.csv and params.csv.
void Trainer::log_statistics(Logs& logs, const std::vector<SiteRow>& sites, const StepResult& result,
                             const std::vector<WeightChange>& changes) {
  summary_.growth = growth(sites);
  summary_.grad_first_last = grad_first_last(model_.layout(), result.norms.by_parameter);
  if (!logs.layers) return;

  write_layers(*logs.layers, state_.step, sites);
  write_params(*logs.params, state_.step, model_.layout(),
               parameter_rows(config_.train, model_.layout(), result.norms, changes));
}

// Runs the step again with every tap on. Nothing has been updated, so it is the same step.
FirstNonfinite Trainer::find_nonfinite(Index step) {
  statistics_.clear();
  const StepResult& result = runner_.compute(model_, step, &statistics_);
  return first_nonfinite(statistics_, result.norms, model_.layout(), step);
}

// Finds what broke, tells what led to it, and writes the rows of the last steps that were watched beside
// those that were logged anyway.
void Trainer::tell_divergence(Logs& logs, Index step) {
  summary_.first_nonfinite = find_nonfinite(step);
  const std::vector<SiteRow> broken = statistics_.rows();
  summary_.story = divergence_story(*summary_.first_nonfinite, broken, recent_);
  if (!logs.layers) return;
  const Index kept = recent_.steps().empty() ? step - 1 : recent_.steps().front().step - 1;
  for (const RecentSteps::Step& earlier : recent_.steps()) {
    add_layers(*logs.layers, earlier.step, earlier.sites);
  }
  add_layers(*logs.layers, step, broken);
  logs.layers->merge_after(kept);  // at once: the last checkpoint counts on some of the rows replaced
}

void Trainer::save(Logs& logs) {
  logs.sync();
  state_.recent = recent_.to_numbers();
  save_checkpoint(folder_.file_to_write(checkpoint_file), facts(), state_, model_, optimizer_, keep_);
  keep_ = Keep::previous;
  saved_best_step_ = state_.best_step;
  std::error_code ignored;  // settle_best() removes what stays
  std::filesystem::remove(previous_path(folder_.file(best_file)), ignored);
}

RunSummary Trainer::run(const std::atomic<bool>& stop) {
  const Stopwatch whole;
  const double earlier_seconds = reopen_summary(folder_, resumed_);
  const Index first_step = state_.step + 1, steps = config_.train.steps;
  const Index tokens_per_step = config_.train.grad_accum * config_.train.batch_size * config_.model.context;

  if (!resumed_) settle_best();
  write_atomically(folder_.file_to_write(config_file), dump_text(config_));
  Logs logs = open_logs();

  double step_seconds = 0, recent = 0;  // in steps alone; of a step, smoothed
  RunStatus status = RunStatus::done;
  for (Index step = first_step; step <= steps; ++step) {
    const Stopwatch watch;
    const bool last = step == steps;
    const bool log_sites = last || due(step, config_.log.layers_every);
    const bool listen = log_sites || recent_.worth_watching();
    statistics_.clear();
    const StepResult& result = runner_.compute(model_, step, listen ? &statistics_ : nullptr);
    const double lr = learning_rate(config_.train, step);
    const double clip = clip_factor(config_.train.grad_clip, result.norms.total);

    bool diverged = false;
    const std::vector<WeightChange>* changes = nullptr;  // none where the update was skipped
    if (result.finite()) {
      changes = &optimizer_.update(step, lr, clip, model_.gradients, model_.parameters);
      state_.consecutive_skips = 0;
    } else {
      diverged = config_.train.on_nonfinite == OnNonfinite::stop ||
                 ++state_.consecutive_skips >= max_consecutive_skips;
      if (diverged) {
        tell_divergence(logs, step);
      } else {
        ++state_.skipped;
        observer_.on_note(text("step ", step, ": loss or gradient not finite; the update is skipped"));
      }
    }
    if (!diverged) {
      const float hashed[2] = {result.loss, result.grad_norm()};
      state_.trajectory_hash = fnv1a(hashed, sizeof hashed, state_.trajectory_hash);
      state_.step = step;
      summary_.final_train_loss = result.loss;
    }
    recent_.add_norm(result.norms.total);
    if (listen && !diverged) {
      std::vector<SiteRow> sites = statistics_.rows();
      if (step == 1) {
        state_.branch_share = branch_share(sites);
        if (state_.branch_share) observer_.on_branch_share(*state_.branch_share);
      }
      if (log_sites) log_statistics(logs, sites, result, changes != nullptr ? *changes : no_change());
      if (changes != nullptr) recent_.add(step, std::move(sites));
    }

    const double seconds = watch.seconds();
    step_seconds += seconds;
    recent = recent == 0 ? seconds : 0.9 * recent + 0.1 * seconds;

    std::optional<double> val_loss;
    const bool evaluate = !diverged && !corpus_.val.empty() &&
                          (last || (config_.eval.every > 0 && step % config_.eval.every == 0));
    if (evaluate) {
      val_loss = evaluate_now(last);
      if (last) summary_.final_val_loss = val_loss;
      after_evaluation(*val_loss);
    }
    if (evaluate || diverged || last || due(step, config_.log.every)) {
      write_metrics(logs.metrics,
                    {step, step * tokens_per_step, result.loss, val_loss, lr, result.grad_norm(), clip,
                     seconds * 1e3, static_cast<double>(tokens_per_step) / seconds});
    }
    if (diverged) {
      status = RunStatus::diverged;
      break;
    }
    observer_.on_step({step, steps, result.loss, static_cast<double>(tokens_per_step) / recent,
                       recent * static_cast<double>(steps - step)});
    const bool interrupted = !last && stop.load();
    const bool checkpoint = config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0;
    if (interrupted || (checkpoint && !last)) save(logs);
    if (interrupted) {
      status = RunStatus::interrupted;
      break;
    }
  }

  summary_.status = status;
  summary_.steps = state_.step;
  summary_.best_val_loss = state_.best_val_loss;
  summary_.best_step = state_.best_step;
  summary_.skipped = state_.skipped;
  summary_.branch_share = state_.branch_share;
  if (corpus_.val.size() >= 2)
    summary_.unigram = unigram_loss(corpus_.train, corpus_.val, corpus_.vocab.size());
  summary_.trajectory_hash = state_.trajectory_hash;
  const Index done = state_.step - first_step + 1;
  if (step_seconds > 0) summary_.tokens_per_s = static_cast<double>(done * tokens_per_step) / step_seconds;
  if (status == RunStatus::done) {
    save_model(folder_.file_to_write(model_file), facts(), state_.step, model_);
    const Token start = default_prompt(corpus_.vocab);
    write_atomically(folder_.file_to_write(sample_file),
                     sample_text(model_, corpus_.vocab, {&start, 1}, sample_length,
                                 {.temperature = sample_temperature, .seed = config_.train.seed}),
                     "\n");
  }
  summary_.seconds = earlier_seconds + whole.seconds();
  write_summary(folder_, config_, summary_);
  // The last checkpoint comes after all else: where it is, the run is whole; where a kill came first, the
  // checkpoint before it leads to the same end.
  if (status == RunStatus::done) save(logs);
  return summary_;
}

}  // namespace normscope
