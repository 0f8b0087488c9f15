// normscope COMMAND [ARGS]: finds the command, prints errors, sets the exit code.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>

#include "cli/commands.h"
#include "cli/startup.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"
#include "train/environment.h"

namespace normscope {

std::span<const Command* const> all_commands() {
  static constexpr const Command* all[] = {&train_command, &probe_command,   &predict_command,
                                           &sweep_command, &compare_command, &sample_command,
                                           &eval_command,  &measure_command, &explain_command, &check_command,
                                           &bench_command, &config_command,  &completion_command};
  return all;
}

namespace {

void print_help(std::ostream& out) {
  out << "normscope " << NORMSCOPE_VERSION
      << ": small decoder transformers, and what the place of their norms does to every layer\n\n"
         "usage: normscope COMMAND [ARGUMENTS]\n\n";
  for (const Command* command : all_commands())
    out << "  " << aligned_left(command->name + " " + command->arguments, 20) << command->purpose << '\n';
  out << "\n`normscope COMMAND --help` says more. Start with: normscope train configs/quickstart.json\n";
}

// `ranks` becomes those that share the command, where it asks for them.
Exit dispatch(int argc, char** argv, std::unique_ptr<Communicator>& ranks) {
  const std::string name = argc > 1 ? argv[1] : "";
  const bool asked = name == "--help" || name == "-h" || name == "help";
  if (name.empty() || asked) {
    print_help(asked ? std::cout : std::cerr);
    return asked ? Exit::ok : Exit::usage;
  }
  if (name == "--version") {
    std::cout << version_text() << '\n';
    return Exit::ok;
  }
  std::vector<std::string> names;
  for (const Command* command : all_commands()) {
    if (name == command->name) {
      const bool has_mpi =
          std::ranges::find(command->options, mpi_name, &Option::name) != command->options.end();
      const auto asks = [](std::string_view argument) { return argument == text("--", mpi_name); };
      if (has_mpi && std::any_of(argv + 2, argv + argc, asks)) {
        ranks = mpi_ranks();
        setenv("TERM", "dumb", 1);  // mpirun gives the first one a terminal, and what it writes to a log
      }
      CommandLine line(*command, *ranks);
      const bool is_call = ranks->together([&] { return line.parse(argc - 1, argv + 1); });
      return is_call ? command->run(line) : Exit::ok;
    }
    names.push_back(command->name);
  }
  const std::string meant =
      name.ends_with(".json") ? "normscope train " + escape_controls(name) : nearest_or_begun(name, names);
  refuse("normscope", "unknown command ", escape_controls(name), "; ",
         meant.empty() ? "`normscope --help` lists all" : "did you mean " + meant + "?");
}

Exit run(int argc, char** argv) {
  Exit exit = Exit::failure;
  auto ranks = std::make_unique<Communicator>();
  const auto stop = [&](const std::string& message) {
    // What all ranks have agreed to leave for is said by the first.
    if (ranks->is_first() || !ranks->has_left()) print_error(ranks->said_here() + message);
    ranks->abort(exit);
  };
  try {
    exit = dispatch(argc, argv, ranks);
    ranks->leave();
  } catch (const Error& error) {
    exit = error.exit;
    stop(error.what());
  } catch (const std::bad_alloc&) {
    stop("[memory] not enough for this; use a smaller model, context or batch_size");
  } catch (const std::filesystem::filesystem_error& error) {
    stop(text("[file] ", escape_controls(error.path1().string()), ": ", error.code().message()));
  } catch (const std::exception& error) {
    stop(
        text("[normscope] unexpected: ", error.what(), "; please report it with the command and the config"));
  }
  if (!ranks->is_first()) return Exit::ok;  // mpirun ends all others when one returns something else
  std::cout.flush();
  if (std::cout || exit != Exit::ok) return exit;
  print_error("[output] could not write all of the output");
  return Exit::failure;
}

}  // namespace
}  // namespace normscope

int main(int argc, char** argv) {
  normscope::open_standard_streams();
  return static_cast<int>(normscope::run(argc, argv));
}
