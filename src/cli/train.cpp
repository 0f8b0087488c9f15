// normscope train CONFIG: trains a model, shows how it goes, leaves a run folder.
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/load.h"
#include "io/utf8.h"
#include "model/cost.h"
#include "run/figures.h"
#include "train/trainer.h"

namespace normscope {
namespace {

std::string loss_text(double nats) {
  return fixed(nats, 4) + " nats (" + fixed(nats / std::log(2.0), 4) + " bits)";
}

// A path as a shell takes it.
std::string shell_word(const std::string& path) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=,:@%";
  std::string word = escape_controls(path);
  if (word.find_first_not_of(plain) == word.npos) return word;
  for (std::size_t at = 0; (at = word.find('\'', at)) != word.npos; at += 4) word.replace(at, 1, "'\\''");
  return "'" + word + "'";
}

class ShowTraining : public TrainObserver {
 public:
  ShowTraining(bool quiet, const ModelConfig& model) : line_(quiet), model_(model) {}

  void on_step(const Progress& p) override {
    if (!line_.due()) return;
    std::vector<std::string> parts = {text("step ", p.step, "/", p.steps), "loss " + fixed(p.loss, 4), val_,
                                      short_number(p.tokens_per_s) + " tokens/s",
                                      duration_text(p.seconds_left) + " left"};
    std::erase(parts, "");  // no validation yet
    line_.show({fitted(std::move(parts))});
  }
  void on_evaluation(Index, double val_loss) override { val_ = "val " + fixed(val_loss, 4); }
  void on_note(const std::string& note) override {
    line_.clear();
    print_error(note);
  }
  void on_threads(Index step, int threads, int before) override {
    line_.say(text("threads: ", threads, " from step ", step + 1, " on, now faster than ", before));
  }
  void on_branch_share(double share) override {
    if (!branches_too_small(model_, share)) return;
    line_.say(
        text("note: at the start a sublayer adds ", significant_text(100 * share, 2),
             "% to the stream, so the norms' place can hardly matter; larger model.init.std or smaller ",
             "model.init.embed_std makes that more"));
  }

  ProgressDisplay& line() { return line_; }

 private:
  ProgressDisplay line_;
  const ModelConfig& model_;
  std::string val_;
};

// What a resumed run may not change is refused; what changes the schedule is said.
void compare_with_folder(const RunConfig& config, const RunFolder& folder, ProgressDisplay& line) {
  const RunConfig before = load_config(folder.file(config_file), {}, {.need_data = false}).config;
  if (const std::string keys = fixed_differences(before, config); !keys.empty()) {
    refuse("resume", "the config differs from ", escape_controls(folder.file(config_file)), " in ", keys,
           "; set it back, or start another run with --out DIR");
  }
  for (const Difference& difference : keys_that_differ(before, config)) {
    if (difference.key == "train.steps")
      line.say(text("train.steps changes: ", difference.values, "; so does the learning rate schedule"));
  }
}

// Goes on from the folder's checkpoint, or from step 0. False: the run is finished.
bool resume(Trainer& trainer, Index steps, const std::string& folder, ProgressDisplay& line) {
  const bool has_checkpoint = trainer.resume();
  const Index step = trainer.state().step;
  if (has_checkpoint && step >= steps) {
    line.say(text(folder, " is finished (step ", step,
                  step > steps ? "; train.steps asks for no more than " : " of ", steps, "); nothing to do"));
    return false;
  }
  line.say(has_checkpoint ? text("resuming ", folder, " after step ", step)
                          : "no checkpoint in " + folder + "; starting at step 0");
  return true;
}

std::string start_text(const RunConfig& config, const Trainer& trainer, const Threads& threads) {
  const ParameterLayout& layout = trainer.model().layout();
  const Index tokens = config.train.grad_accum * config.train.batch_size * config.model.context;
  const Index left = config.train.steps - trainer.state().step;
  const double share = static_cast<double>(left) / static_cast<double>(config.train.steps);
  return text(config.name, ": ", grouped(layout.count()), " parameters, ", grouped(tokens),
              " tokens a step, ", machine_text(config.train, threads), ", about ",
              duration_text(expected_seconds(config, layout) * share), " for ", grouped(left), " steps");
}

// Says how the run ended, and what to do next.
Exit tell_end(const RunRecord& run, const std::string& folder, ProgressDisplay& line) {
  const std::string shown_folder = escape_controls(folder);
  line.clear();
  if (run.status == status_interrupted) {
    std::cerr << "interrupted after step " << run.steps
              << "; go on with: " << shell_word(program_invocation_name) << " train --resume "
              << shell_word(folder) << '\n';
    return Exit::interrupted;
  }
  if (run.status == status_diverged) {
    std::cerr << "[train] diverged at " << run.story << "; the " << run.steps
              << (run.steps == 1 ? " step" : " steps") << " before it are in " << shown_folder
              << "; try a lower train.lr, train.warmup_steps, or train.grad_clip\n";
    return Exit::diverged;
  }
  std::string losses = text("train loss ", loss_text(*run.final_train_loss));
  if (run.final_val_loss) losses += ", validation " + loss_text(*run.final_val_loss);
  line.say(text("done: ", losses, ", ", short_number(*run.tokens_per_s), " tokens/s, ",
                duration_text(*run.seconds), " in all; in ", shown_folder));
  return Exit::ok;
}

Exit run(const CommandLine& line) {
  if (line.has("resume") && line.has("overwrite")) {
    refuse("train", "--resume goes on with a run, --overwrite starts it again; give one of them");
  }

  const std::atomic<bool>& stop = stop_on_signals();  // first: a line may be said to a pipe without a reader
  const std::string& argument = line.positionals()[0];
  const bool is_run = line.has("resume") && std::filesystem::is_directory(argument);
  const std::string config_path =
      is_run ? (std::filesystem::path(argument) / config_file).string() : argument;
  const RunConfig config = load_config(config_path, line.all_of("set")).config;
  const Threads threads = set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config.model, corpus.vocab.size(), config.train.batch_size, config.train.grad_accum);

  const Existing existing = line.has("resume")      ? Existing::resume
                            : line.has("overwrite") ? Existing::overwrite
                                                    : Existing::refuse;
  RunFolder folder(line.text_of("out").value_or(is_run ? argument : "runs/" + config.name), existing,
                   line.has("wait") ? IfLocked::wait : IfLocked::fail);
  ShowTraining show(line.has("quiet"), config.model);
  if (existing == Existing::resume && folder.has(config_file))
    compare_with_folder(config, folder, show.line());

  Trainer trainer(config, corpus, folder, show);
  if (existing == Existing::resume &&
      !resume(trainer, config.train.steps, escape_controls(folder.path()), show.line()))
    return Exit::ok;
  show.line().say(start_text(config, trainer, threads));
  return tell_end(trainer.run(stop, threads.is_fixed ? 0 : threads.most), folder.path(), show.line());
}

}  // namespace

const Command train_command = {
    .name = "train",
    .arguments = "CONFIG",
    .purpose = "train a model; logs every layer's activations and gradients",
    .details = "Reads one JSON file and leaves a run folder with logs, checkpoints and weights.",
    .options = {set_option,
                threads_option,
                {"out", "DIR", "run folder (default: runs/<name>)"},
                {"resume", "",
                 "go on from the checkpoint in DIR; a run's folder may stand for CONFIG and DIR"},
                {"overwrite", "", "start again in a folder that holds a run"},
                {"wait", "",
                 "where another process writes in the folder, wait for its end (default: refuse)"},
                {"q,quiet", "", "print nothing but errors"}},
    .run = run};

}  // namespace normscope
