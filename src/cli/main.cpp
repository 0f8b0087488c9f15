// normscope COMMAND [ARGS]: finds the command, prints errors, sets the exit code.
#include <array>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/startup.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/nearest.h"
#include "io/utf8.h"
#include "train/environment.h"

namespace normscope {
namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* usage;
  const char* purpose;
};

constexpr std::array commands = {
    Command{"train", train_command, "CONFIG", "train a model; logs every layer's activations and gradients"},
    Command{"probe", probe_command, "CONFIG",
            "activations and gradients at initialisation, or of given weights"},
    Command{"sweep", sweep_command, "SWEEP.json",
            "a grid of runs, side by side; run again, it finishes what is missing"},
    Command{"compare", compare_command, "RUN...", "runs side by side"},
    Command{"sample", sample_command, "RUN|FILE", "text from a trained model"},
    Command{"eval", eval_command, "RUN|FILE", "loss over a whole text, beside n-gram baselines"},
    Command{"explain", explain_command, "[CONFIG]",
            "a norm's arithmetic, a placement's equations, a config's blocks"},
    Command{"check", check_command, "CONFIG", "proves the wiring of a config's model, law by law"},
    Command{"bench", bench_command, "[CONFIG]", "speed, as a share of what this machine can do"},
    Command{"config", config_command, "[CONFIG]", "a config resolved, or every key there is"},
};

void print_help(std::ostream& out) {
  out << "normscope " << NORMSCOPE_VERSION
      << ": small decoder transformers, and what the place of their norms does to every layer\n\n"
         "usage: normscope COMMAND [ARGUMENTS]\n\n";
  for (const Command& command : commands) {
    const std::string form = std::string(command.name) + " " + command.usage;
    out << "  " << form << std::string(form.size() < 20 ? 20 - form.size() : 1, ' ') << command.purpose
        << '\n';
  }
  out << "\n`normscope COMMAND --help` says more. Start with: normscope train configs/quickstart.json\n";
}

int dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty()) {
    print_help(std::cerr);
    return static_cast<int>(Exit::usage);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(std::cout);
    return static_cast<int>(Exit::ok);
  }
  if (name == "--version") {
    std::cout << version_text() << '\n';
    return static_cast<int>(Exit::ok);
  }
  for (const Command& command : commands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  const std::string meant = nearest_or_begun(name, names);
  refuse("normscope", "unknown command ", escape_controls(name), "; ",
         meant.empty() ? "`normscope --help` lists all" : "did you mean " + meant + "?");
}

int run(int argc, char** argv) {
  int code = static_cast<int>(Exit::failure);
  try {
    code = dispatch(argc, argv);
  } catch (const Error& error) {
    print_error(error.what());
    code = static_cast<int>(error.exit);
  } catch (const std::bad_alloc&) {
    std::cerr << "[memory] not enough for this; use a smaller model, context or batch_size\n";
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(text("[file] ", escape_controls(error.path1().string()), ": ", error.code().message()));
  } catch (const std::exception& error) {
    print_error(
        text("[normscope] unexpected: ", error.what(), "; please report it with the command and the config"));
  }
  std::cout.flush();
  if (!std::cout && code == static_cast<int>(Exit::ok)) {
    std::cerr << "[output] could not write all of the output\n";
    code = static_cast<int>(Exit::failure);
  }
  return code;
}

}  // namespace
}  // namespace normscope

int main(int argc, char** argv) {
  normscope::open_standard_streams();
  normscope::shorten_openmp_spin(argv);
  return normscope::run(argc, argv);
}
