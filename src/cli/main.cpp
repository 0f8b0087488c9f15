// normscope COMMAND [ARGS]: finds the command, prints errors, sets the exit code.
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
namespace {

constexpr const Command* commands[] = {&train_command,   &probe_command,  &predict_command, &sweep_command,
                                       &compare_command, &sample_command, &eval_command,    &explain_command,
                                       &check_command,   &bench_command,  &config_command};

void print_help(std::ostream& out) {
  out << "normscope " << NORMSCOPE_VERSION
      << ": small decoder transformers, and what the place of their norms does to every layer\n\n"
         "usage: normscope COMMAND [ARGUMENTS]\n\n";
  for (const Command* command : commands)
    out << "  " << aligned_left(command->name + " " + command->arguments, 20) << command->purpose << '\n';
  out << "\n`normscope COMMAND --help` says more. Start with: normscope train configs/quickstart.json\n";
}

Exit dispatch(int argc, char** argv) {
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
  for (const Command* command : commands) {
    if (name == command->name) {
      CommandLine line(*command);
      return line.parse(argc - 1, argv + 1) ? command->run(line) : Exit::ok;
    }
    names.push_back(command->name);
  }
  const std::string meant = nearest_or_begun(name, names);
  refuse("normscope", "unknown command ", escape_controls(name), "; ",
         meant.empty() ? "`normscope --help` lists all" : "did you mean " + meant + "?");
}

Exit run(int argc, char** argv) {
  Exit exit = Exit::failure;
  try {
    exit = dispatch(argc, argv);
  } catch (const Error& error) {
    print_error(error.what());
    exit = error.exit;
  } catch (const std::bad_alloc&) {
    print_error("[memory] not enough for this; use a smaller model, context or batch_size");
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(text("[file] ", escape_controls(error.path1().string()), ": ", error.code().message()));
  } catch (const std::exception& error) {
    print_error(
        text("[normscope] unexpected: ", error.what(), "; please report it with the command and the config"));
  }
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
