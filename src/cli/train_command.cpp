// normscope train CONFIG: trains a model, shows how it goes, leaves a run folder.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/load.h"
#include "core/text.h"
#include "io/utf8.h"
#include "kernels/simd.h"
#include "logs/record.h"
#include "model/model.h"
#include "train/estimates.h"
#include "train/learning_rate.h"
#include "train/ranks.h"
#include "train/trainer.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

std::string loss_text(double nats) {
  return fixed(nats, 4) + " nats (" + fixed(nats / std::log(2.0), 4) + " bits)";
}

class TrainingDisplay : public TrainObserver {
 public:
  TrainingDisplay(const RunConfig& config, bool quiet) : config_(config), line_(quiet) {}

  void on_step(const MetricsRow& row, double seconds_per_step) override {
    if (!line_.due()) return;
    const Index steps = config_.train.steps;
    const double seconds_left = seconds_per_step * static_cast<double>(steps - row.step);
    std::vector<std::string> parts = {
        text("step ", row.step, "/", steps),
        "loss " + fixed(row.train_loss, 4),
        val_,
        gradient_,
        short_number(static_cast<double>(config_.tokens_per_step()) / seconds_per_step) + " tokens/s",
        duration_text(seconds_left) + " left"};
    std::erase(parts, "");  // no validation yet, no layers
    line_.show(std::move(parts));
  }
  void on_evaluation(Index, double val_loss) override { val_ = "val " + fixed(val_loss, 4); }
  // The gradient of the residual stream after each block, and the smallest to the largest.
  void on_sites(const std::vector<SiteRow>& rows) override {
    std::vector<double> sizes;
    for (const SiteRow& row : rows) {
      if (row.id.site == Site::stream && row.id.layer > 0) sizes.push_back(row.grad_rms);
    }
    gradient_ = "grad " + sparkline(sizes);
  }
  void on_note(const std::string& note) override {
    line_.clear();
    print_error(note);
  }
  ProgressDisplay& line() { return line_; }

 private:
  const RunConfig& config_;
  ProgressDisplay line_;
  std::string val_, gradient_;
};

// Usage Error if the config differs from the folder's in keys that a resumed run must keep. Prints a change
// of train.steps, which changes every schedule but the constant one.
void check_resumed_config(const RunConfig& config, const RunFolder& folder, ProgressDisplay& line) {
  const RunConfig before = load_config(folder.file(config_file), {}, {.need_data = false}).config;
  if (const std::string keys = fixed_differences(before, config); !keys.empty())
    refuse("resume", "the config differs from ", folder.file(config_file), " in ", keys,
           "; set it back, or start another run with --out DIR");
  const bool is_constant = config.train.schedule == ScheduleKind::constant;
  if (before.train.steps != config.train.steps)
    line.say(text("train.steps changes: ", before.train.steps, " -> ", config.train.steps,
                  is_constant ? "" : "; so does the learning rate schedule"));
}

// Resumes from the folder's checkpoint, or starts at step 0. False: the run is finished. `folder` is nullptr
// at all ranks but the first.
bool resume(Trainer& trainer, Index steps, const RunFolder* folder, const Ranks& ranks, ProgressDisplay& line) {
  const bool has_checkpoint = trainer.resume();
  const std::string shown_folder = folder ? escape_controls(folder->path()) : "";
  const Index step = trainer.record().steps;
  const bool is_finished =
      ranks.any(folder != nullptr && record_in(folder->file(summary_file), "status") == status_done);
  if (!has_checkpoint) {
    line.say("no checkpoint in " + shown_folder + "; starting at step 0");
  } else if (step < steps) {
    line.say(text("resuming ", shown_folder, " after step ", step,
                  folder ? checksum_note(folder->file(checkpoint_file)) : ""));
  } else if (is_finished) {
    line.say(text(shown_folder, " is finished (step ", step,
                  step > steps ? "; train.steps asks for no more than " : " of ", steps, "); nothing to do"));
  } else if (step == steps && trainer.has_results()) {
    line.say(text("finishing ", shown_folder, ", whose ", steps, " steps are done"));
  } else {
    fail("resume", shown_folder, ": its checkpoint is of step ", step,
         " of a run that did not end there, and ", "train.steps = ", steps,
         " leaves no step to train; raise train.steps, or start again with --overwrite");
  }
  return step < steps || !is_finished;
}

std::string start_text(const RunConfig& config, const Trainer& trainer, int ranks) {
  const ParameterLayout& layout = trainer.model().layout();
  const Index left = config.train.steps - trainer.record().steps;
  const double seconds = expected_step_seconds(config.model, layout, config.tokens_per_step());
  return text(config.name, ": ", grouped(layout.count()), " parameters, ", grouped(config.tokens_per_step()),
              " tokens a step, ", ranks > 1 ? text(ranks, " ranks of ") : "", machine_text(config.train),
              ", about ", duration_text(seconds * static_cast<double>(left) / ranks), " for ", grouped(left),
              " steps");
}

// Prints how the run ended and what to do next.
Exit report_end(const RunRecord& run, const RunConfig& config, const std::string& folder,
                ProgressDisplay& line) {
  const std::string shown_folder = escape_controls(folder);
  line.clear();
  if (run.status == status_interrupted) {
    std::cerr << "interrupted after step " << run.steps
              << "; go on with: " << shell_word(program_invocation_name) << " train --resume "
              << shell_word(folder) << '\n';
    return Exit::interrupted;
  }
  if (run.status == status_diverged) {
    const FirstNonfinite& first = *run.first_nonfinite;
    std::cerr << "[train] diverged at step " << first.step << ": " << text_of(first)
              << " became non-finite; its logs are in " << shown_folder << "; try "
              << (run.steps == 0
                      ? "another initialisation: model.init"
                      : "a lower train.lr, more train.warmup_steps, or clipping by train.grad_clip")
              << '\n';
    return Exit::diverged;
  }
  std::string losses = text("train loss ", loss_text(*run.final_train_loss));
  if (run.final_val_loss) losses += ", validation " + loss_text(*run.final_val_loss);
  if (run.tokens_per_s) losses += ", " + short_number(*run.tokens_per_s) + " tokens/s";
  line.say(text("done: ", losses, ", ", duration_text(*run.seconds), " in all; in ", shown_folder));
  if (config.log.layers_every > 0)
    line.say("its layers as a picture: scripts/plot.py layers " + shell_word(folder));
  return Exit::ok;
}

struct Inputs {
  Loaded loaded;
  Corpus corpus;
  int max_threads_tried;         // of set_up_threads()
  std::optional<Parent> parent;  // with --from
};

// The file of --from: of a run that of its newest weights or, for their moments, its checkpoint.
std::optional<Parent> parent_of(const CommandLine& line) {
  const std::optional<std::string> from = line.text_of("from");
  const bool with_moments = line.has("moments");
  if (with_moments && !from) refuse("train", "--moments keeps those of another run; name it with --from RUN");
  if (!from) return std::nullopt;
  const bool is_checkpoint = with_moments && fs::is_directory(*from);
  if (is_checkpoint) require_run(*from, checkpoint_file);
  const std::string file =
      is_checkpoint ? (fs::path(*from) / checkpoint_file).string() : newest_weights(*from);
  return Parent{std::make_unique<const SafetensorsFile>(file), with_moments};
}

std::string folder_of(const CommandLine& line, const RunConfig& config, bool is_run) {
  return line.text_of("out").value_or(is_run ? line.positionals()[0] : "runs/" + config.name);
}

// Reads the config and the corpus on each rank.
Inputs read_inputs(const CommandLine& line, const std::string& config_path, bool is_run, const Ranks& ranks) {
  if (line.has("resume") && line.has("overwrite"))
    refuse("train", "--resume goes on with a run, --overwrite starts it again; give one of them");
  if (line.has("resume") && line.has("from"))
    refuse("train",
           "--resume goes on with the run's own weights, --from starts with another's; give one of them");
  Loaded loaded = load_config(config_path, line.all_of("set"), {.may_have_moved = is_run});
  const RunConfig& config = loaded.config;
  const TrainConfig& train = config.train;
  if (const Index n = ranks.size(); train.grad_accum < n)
    refuse("mpi", n, " ranks cannot share ", train.grad_accum,
           " micro-batches (train.grad_accum); start fewer, or cut a step into more: train.grad_accum=", n,
           " with train.batch_size=", std::max<Index>(1, train.grad_accum * train.batch_size / n));
  const int max_threads_tried = set_up_threads(line, train.threads);
  std::optional<Parent> parent = parent_of(line);
  const fs::path folder = folder_of(line, config, is_run);
  const std::string own = (folder / checkpoint_file).string();  // of a run to be resumed
  Vocabulary known;
  if (parent) known = vocabulary_in(parent->file->metadata(), parent->file->path());
  if (line.has("resume") && fs::exists(own)) known = vocabulary_in(read_metadata(own), own);
  Corpus corpus = corpus_of(config, known);
  require_memory(config, corpus.vocab.size(), train.batch_size);
  if (parent) {
    known.encode(corpus.vocab.text(), "train", join(config.data.path, " + "));  // refuses what it lacks
    require_parent(*parent, config, ParameterLayout(config.model, known.size()));
  }
  return {std::move(loaded), std::move(corpus), max_threads_tried, std::move(parent)};
}

// The inputs that decide a run's bits, for a comparison of ranks.
std::string summary_of(const CommandLine& line, const Inputs& inputs) {
  RunConfig config = inputs.loaded.config;
  config.data.path.clear();  // machines may keep the same text in different places
  config.data.val_path.clear();
  return text(line.has("resume") ? "--resume, " : "", "config ", hex(fnv1a(dump_text(config))), ", text ",
              hex(inputs.corpus.hash), ", vocabulary ", hex(fnv1a(inputs.corpus.vocab.to_json())), ", ",
              isa_name(config.train.gemm_mode()), ", ", blas_text());
}

// Prints what may surprise the user of these inputs.
void say_notes(const Inputs& inputs, ProgressDisplay& line) {
  constexpr std::size_t most_named = 8;
  const TrainConfig& train = inputs.loaded.config.train;
  const std::vector<std::string>& without_effect = inputs.loaded.without_effect;
  if (!without_effect.empty()) line.say("note: set without effect: " + join(without_effect));
  if (train.warmup_steps > train.steps)
    line.say(text("note: train.warmup_steps is above train.steps, so the rate rises to ",
                  significant_text(learning_rate(train, train.steps)), " only"));
  const InstructionSet& set = instruction_set();
  const bool has_fast_pairs = set.is_fastest && isa_name(train.gemm_mode()) != std::string_view(set.name_of_floats);
  if (train.precision == Precision::bf16 && !has_fast_pairs)
    line.say(text("note: with ", isa_name(train.gemm_mode()), " on this processor bf16 is no faster than fp32"));
  std::vector<std::string> unseen = unseen_characters(inputs.corpus);
  if (unseen.empty()) return;
  const bool names_all = unseen.size() <= most_named;
  if (!names_all) unseen.resize(most_named);
  line.say("note: the training part lacks characters of the validation part, which no model can learn: " +
           join(unseen) + (names_all ? "" : ", ..."));
}

Exit train(const CommandLine& line, Ranks& ranks) {
  const std::atomic<bool>& stop = stop_on_signals();  // first: stdout may be a pipe without a reader
  const std::string& argument = line.positionals()[0];
  const bool is_config = !fs::is_directory(argument) && (fs::exists(argument) || argument.ends_with(".json"));
  const bool is_run = line.has("resume") && !is_config;
  if (is_run) require_run(argument, config_file);
  const std::string config_path = is_run ? (fs::path(argument) / config_file).string() : argument;
  Inputs inputs;
  ranks.together([&] { inputs = read_inputs(line, config_path, is_run, ranks); });
  const RunConfig& config = inputs.loaded.config;
  ranks.require_same(summary_of(line, inputs));

  Existing existing = Existing::refuse;
  if (line.has("resume")) existing = Existing::resume;
  if (line.has("overwrite")) existing = Existing::overwrite;
  TrainingDisplay display(config, line.has("quiet") || !ranks.is_first());
  std::optional<RunFolder> folder;  // the first rank's
  ranks.together([&] {
    if (!ranks.is_first()) return;
    const std::string weights = inputs.parent ? inputs.parent->file->path() : "";
    folder.emplace(folder_of(line, config, is_run), existing, inputs_of(inputs.loaded, weights));
    if (!folder->is_locked())
      display.line().say(text("note: the file system of ", escape_controls(folder->path()),
                              " has no locks; start no second process there"));
    if (existing == Existing::resume && folder->has(config_file))
      check_resumed_config(config, *folder, display.line());
  });
  TrainObserver null_observer;
  RunFolder* const own_folder = folder ? &*folder : nullptr;
  Trainer trainer(config, inputs.corpus, own_folder, ranks.is_first() ? display : null_observer, ranks);
  if (existing == Existing::resume && !resume(trainer, config.train.steps, own_folder, ranks, display.line()))
    return Exit::ok;
  if (inputs.parent) {
    const SafetensorsFile& file = *inputs.parent->file;
    const Index step = trainer.start_from(*inputs.parent);
    display.line().say(text("starting with the weights of step ", step, ": ", escape_controls(file.path()),
                            checksum_note(file.metadata())));
    if (has_seen_validation(*inputs.parent, {config, inputs.corpus}))
      display.line().say("note: the model has been trained on text that this run validates on");
    inputs.parent.reset();  // frees its memory
  }
  display.line().say(start_text(config, trainer, ranks.size()));
  say_notes(inputs, display.line());
  // Trials of a rank would measure the others.
  const RunRecord record = trainer.run(stop, ranks.size() > 1 ? 0 : inputs.max_threads_tried);
  return own_folder ? report_end(record, config, own_folder->path(), display.line()) : Exit::ok;
}

Exit run(const CommandLine& line) {
  if (!line.has("mpi")) return train(line, one_rank());
  const std::unique_ptr<Ranks> ranks = mpi_ranks();
  try {
    const Exit exit = train(line, *ranks);
    ranks->leave();
    return exit;
  } catch (const Error& error) {
    if (!ranks->has_left()) {  // an error on this rank alone
      print_error(ranks->prefix() + error.what());
      ranks->abort(error.exit);
    }
    if (ranks->is_first()) throw;
    return Exit::ok;  // mpirun ends the first rank when another one returns an error
  }
}

}  // namespace

const Command train_command = {
    .name = "train",
    .arguments = "CONFIG",
    .purpose = "train a model and log every layer's activations and gradients",
    .details =
        "Reads a JSON config and leaves a run folder with logs, checkpoints and weights. src/logs/README.md "
        "defines the columns of its logs. In the progress line, `grad ▄▃▂▂ 1:2.6` has a bar for the stream's "
        "gradient after each block, the first one left, and the ratio of the smallest to the largest.",
    .options = {set_option,
                threads_option,
                {"out", "DIR", "run folder (default: runs/<name>)"},
                {"resume", "",
                 "go on from the checkpoint in DIR; CONFIG may be the run's folder, which is then DIR too; "
                 "--set may change name, train.steps, train.threads, train.on_nonfinite, the path of the "
                 "same text, and all of eval, log and checkpoint"},
                {"from", "RUN|FILE",
                 "start with the newest weights of a run or file, whose tensors must have the same names and "
                 "shapes, whatever else its config has; the vocabulary stays the model's, which must have all "
                 "characters of the text",
                 " init init_from init-from pretrained "},
                {"moments", "",
                 "with --from: keep the optimiser's moments too, count its updates on, and draw the batches "
                 "behind those of its steps"},
                {"overwrite", "", "start again in a folder that holds a run"},
                {"mpi", "", "share the work with the other processes that mpirun or srun started"},
                {"q,quiet", "", "print only errors"}},
    .run = run};

}  // namespace normscope
