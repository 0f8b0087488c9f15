// The commands, one file each; their command lines, where a table of options gives parsing, help and errors
// with suggestions; and the setup that they share: threads, signals, the corpus.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "config/load.h"
#include "core/error.h"
#include "logs/run_folder.h"
#include "train/checkpoint.h"

namespace normscope {

struct Option {
  std::string_view name;   // with its short form: "q,quiet"
  std::string_view value;  // the value's name in the help; empty: a flag
  std::string_view help;
  std::string_view other_names = "";  // between blanks: names for which an error suggests this option

  std::string long_name() const { return std::string(name.substr(name.find(',') + 1)); }
};

// Options of several commands.
constexpr Option set_option = {"set", "KEY=VALUE",
                               "set a config key, e.g. --set model.norm=rmsnorm; may be given often"};
constexpr Option threads_option = {
    "threads", "N",
    "threads (default: train.threads, else OpenMP's number, at most the container's quota; train then also "
    "tries fewer)"};

constexpr Option step_option = {"step", "S", "a run's weights of step S, which checkpoint.keep_every kept"};

class CommandLine;

struct Command {
  std::string name;
  std::string arguments;  // as in the help: "CONFIG"; "[CONFIG]": optional
  std::string purpose;    // a line of the list of all commands, and the first of the command's own help
  std::string details = "";
  std::vector<Option> options;
  Exit (*run)(const CommandLine&);
  bool computes = true;  // runs parallel loops
};

extern const Command train_command, probe_command, sample_command, eval_command, explain_command,
    check_command, bench_command, config_command;

std::span<const Command* const> all_commands();  // in the order of the help

// The parsed arguments of a command.
class CommandLine {
 public:
  explicit CommandLine(const Command& command) : command_(command) {}

  // Parses the arguments after the command's name. False: --help or --version was given and has been printed.
  // Usage Errors: unknown options (with the nearest known one), missing values, a wrong number of
  // positionals.
  bool parse(int argc, char** argv);

  const std::vector<std::string>& positionals() const { return positionals_; }
  bool has(const std::string& name) const { return given_.contains(name); }
  std::optional<std::string> text_of(const std::string& name) const;  // of a path, with its ~/ expanded
  std::vector<std::string> all_of(const std::string& name) const;

  // The option's number, or `otherwise` without the option. Usage Error outside [min, max].
  template <class Number>  // Index or double
  Number number_of(const std::string& name, Number min, Number max, Number otherwise) const;
  std::optional<Index> step() const;  // of step_option

 private:
  void require_positional() const;

  const Command& command_;
  std::map<std::string, std::vector<std::string>> given_;  // the values of each option; of a flag "true"
  std::vector<std::string> positionals_;
};

// The corpus of a config; `known` as for load_corpus().
Corpus corpus_of(const RunConfig& config, const Vocabulary& known = {});

// The files that a command reads, with the file of weights if there is one.
InputFiles inputs_of(const Loaded& loaded, const std::string& weights);

// Sets the thread count: --threads, else train.threads, else default_thread_count(). Limits OpenBLAS to one
// thread in each of ours. Returns the largest count that may be tried; 0 if the user set the count.
int set_up_threads(const CommandLine& line, Index config_threads);

// Makes SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM, SIGVTALRM and SIGPIPE set the returned
// flag, so that a run can save its state. SIGINT or SIGTERM after any of them ends the program at once, and
// nothing is saved (exit 130).
const std::atomic<bool>& stop_on_signals();

// "2 threads, avx512, GEMM auto"; summary.json has the rest.
std::string machine_text(const TrainConfig& config);

}  // namespace normscope
