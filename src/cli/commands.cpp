#include "cli/commands.h"

// By default cxxopts splits list options and positionals at commas; no argument can contain a NUL byte.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cxxopts.hpp>
#include <iostream>

#include "cli/terminal.h"
#include "config/fields.h"
#include "core/machine.h"
#include "core/parallel.h"
#include "core/text.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd.h"
#include "logs/record.h"

namespace normscope {
namespace {

constexpr const char* positional_name = "arguments";

std::atomic<bool> stop_requested{false};

// A closing terminal or a pipe may send several signals, so only SIGINT and SIGTERM end the program at once
// when they follow another signal.
void on_signal(int signal) {
  const bool again = stop_requested.exchange(true);
  if (again && (signal == SIGINT || signal == SIGTERM)) _exit(static_cast<int>(Exit::interrupted));
}

cxxopts::Options parser_of(const Command& command) {
  cxxopts::Options parser("normscope " + command.name,
                          command.purpose + (command.details.empty() ? "" : "\n" + command.details));
  parser.custom_help("[OPTIONS]").positional_help(command.arguments).set_width(110);
  const auto words = [] { return cxxopts::value<std::vector<std::string>>(); };
  parser.add_options()(positional_name, "", words());
  parser.parse_positional({positional_name});
  std::vector<Option> all = {{"h,help", "", "show this help"}, {"version", "", "show the version"}};
  all.insert(all.end(), command.options.begin(), command.options.end());
  for (const Option& option : all) {
    const std::string name(option.name), value(option.value), help(option.help);
    if (value.empty()) {
      parser.add_options()(name, help);
    } else {
      parser.add_options()(name, help, words(), value);
    }
  }
  return parser;
}

// The message about an unknown option. A config key may be meant: other programs have --lr for --set
// train.lr=.
std::string unknown_option(const Command& command, const std::string& argument) {
  const std::size_t equals = std::min(argument.find('='), argument.size());
  const std::string given = argument.substr(0, equals);
  const std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
  std::vector<std::string> names = {"help", "version"};
  std::string option;
  for (const Option& known : command.options) {
    names.push_back(known.long_name());
    if (known.other_names.find(text(' ', name, ' ')) != known.other_names.npos) option = known.long_name();
  }
  const bool has_keys = std::ranges::count(names, set_option.name) > 0;
  const std::string key = has_keys ? nearest_key(name) : "";
  if (option.empty()) option = nearest(name, names);
  const std::string value = equals < argument.size() ? argument.substr(equals + 1) : "VALUE";
  std::string hint = text("`normscope ", command.name, " --help` lists all");
  if (!key.empty()) hint = text("did you mean --set ", key, "=", value, "?");
  if (!option.empty()) hint = text("did you mean --", option, "?");
  return text("[", command.name, "] unknown option ", given, "; ", hint);
}

}  // namespace

bool CommandLine::parse(int argc, char** argv) {
  cxxopts::Options parser = parser_of(command_);
  parser.allow_unrecognised_options();
  try {
    const cxxopts::ParseResult parsed = parser.parse(argc, argv);
    if (parsed.count("help") + parsed.count("version") > 0) {
      std::cout << (parsed.count("help") > 0 ? parser.help() : version_text() + '\n');
      return false;
    }
    std::vector<std::string> errors;
    for (const std::string& unknown : parsed.unmatched()) errors.push_back(unknown_option(command_, unknown));
    if (!errors.empty()) throw Error(Exit::usage, join(errors, "\n"));
    for (const cxxopts::KeyValue& one : parsed.arguments()) given_[one.key()].push_back(one.value());
  } catch (const cxxopts::exceptions::exception& error) {
    refuse(command_.name, error.what(), "; see `normscope ", command_.name, " --help`");
  }
  for (const Option& option : command_.options) {
    if (option.value.empty() && has(option.long_name()) && given_.at(option.long_name())[0] != "true")
      refuse(command_.name, "--", option.long_name(), " takes no value");
  }
  positionals_ = all_of(positional_name);
  require_positional();
  return true;
}

void CommandLine::require_positional() const {
  const std::size_t count = positionals_.size();
  if (count == 1 || (count == 0 && command_.arguments.starts_with('['))) return;
  for (const std::string& given : positionals_) {
    if (given.find('=') != given.npos)
      refuse(command_.name, "unexpected argument; did you mean --set ", given, "?");
  }
  refuse(command_.name, "got ", counted(count, "argument"), "; expected ", command_.arguments,
         "; see `normscope ", command_.name, " --help`");
}

std::vector<std::string> CommandLine::all_of(const std::string& name) const {
  return has(name) ? given_.at(name) : std::vector<std::string>{};
}

std::optional<std::string> CommandLine::text_of(const std::string& name) const {
  const std::vector<std::string> given = all_of(name);
  if (given.empty()) return std::nullopt;
  if (given.size() > 1) refuse(command_.name, "--", name, " is given ", given.size(), " times; give it once");
  const auto option = std::ranges::find(command_.options, name, &Option::long_name);
  const bool is_path =
      option->value.find("DIR") != option->value.npos || option->value.find("FILE") != option->value.npos;
  return is_path ? with_home(given[0]) : given[0];
}

template <class Number>
Number CommandLine::number_of(const std::string& name, Number min, Number max, Number otherwise) const {
  const std::optional<std::string> text = text_of(name);
  if (!text) return otherwise;
  const std::optional<Number> value = parse_number<Number>(*text);
  if (value && *value >= min && *value <= max) return *value;  // NaN is refused
  refuse(command_.name, "--", name, ": got '", *text, "'; expected a number from ", min, " to ", max);
}

std::optional<Index> CommandLine::step() const {
  if (!has("step")) return std::nullopt;
  return number_of<Index>("step", 0, INT64_MAX, 0);
}

template Index CommandLine::number_of(const std::string&, Index, Index, Index) const;
template double CommandLine::number_of(const std::string&, double, double, double) const;

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM, SIGVTALRM, SIGPIPE}) {
    struct sigaction inherited {};
    sigaction(signal, nullptr, &inherited);
    const bool ignored = inherited.sa_handler == SIG_IGN;  // nohup
    if (!ignored || signal == SIGINT || signal == SIGTERM) sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes: the write fails and is reported, as on a full disk
  return stop_requested;
}

Corpus corpus_of(const RunConfig& config, const Vocabulary& known) {
  const DataConfig& data = config.data;
  return load_corpus(data.path, data.val_fraction, data.val_path, config.model.context, known);
}

InputFiles inputs_of(const Loaded& loaded, const std::string& weights) {
  InputFiles inputs = loaded.files;
  inputs.insert(inputs.end(), loaded.config.data.path.begin(), loaded.config.data.path.end());
  inputs.insert(inputs.end(), {loaded.config.data.val_path, weights});
  return inputs;
}

int set_up_threads(const CommandLine& line, Index config_threads) {
  constexpr Index max_threads = 1024;
  const Index wish = line.number_of<Index>("threads", 1, max_threads, config_threads);
  const int threads = wish > 0 ? static_cast<int>(wish) : default_thread_count();
  if (threads > max_threads)
    refuse("threads", "OMP_NUM_THREADS: got ", threads, "; expected 1 to ", max_threads);
  set_thread_count(threads);
  instruction_set();  // throws for an invalid NORMSCOPE_ISA before anything runs
  pin_openblas();
  return wish > 0 ? 0 : threads;
}

std::string machine_text(const TrainConfig& config) {
  return text(counted(thread_count(), "thread"), ", ", isa_name(config.gemm_mode()), ", GEMM ",
              name_of(config.gemm));
}

}  // namespace normscope
