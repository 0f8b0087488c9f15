// normscope COMMAND [ARGS]: finds the command, prints errors, sets the exit code.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "logs/record.h"

namespace normscope {

std::span<const Command* const> all_commands() {
  static constexpr const Command* all[] = {&train_command, &probe_command,   &sample_command,
                                           &eval_command,  &explain_command, &check_command,
                                           &bench_command, &config_command};
  return all;
}

namespace {

// Commands that are scripts: scripts/NAME.py.
constexpr std::string_view script_commands[] = {"compare", "measure", "predict", "sweep"};

// Starts the program again, once, with GOMP_SPINCOUNT=1000, which GNU's OpenMP reads before main() only: a
// thread that has done its part of a loop spins 20 to 50 us for the others and then sleeps. By default it
// spins 300,000 times, beside busy programs on a processor that one of them needs.
void shorten_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code ignored;  // without /proc the spins stay as they are
  if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
    execv(std::filesystem::read_symlink("/proc/self/exe", ignored).c_str(), argv);
}

void print_help(std::ostream& out) {
  out << "normscope " << NORMSCOPE_VERSION
      << ": small decoder transformers, and what the place of their norms does to every layer\n\n"
         "usage: normscope COMMAND [ARGUMENTS]\n\n";
  for (const Command* command : all_commands())
    out << "  " << aligned_left(command->name + " " + command->arguments, 25) << command->purpose << '\n';
  out << "\nAs scripts:";
  for (const std::string_view name : script_commands) out << " scripts/" << name << ".py";
  out << "\n\n`normscope COMMAND --help` says more. Start with: normscope train configs/quickstart.json\n";
}

Exit dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const bool wants_help = name == "--help" || name == "-h" || name == "help";
  if (name.empty() || wants_help) {
    print_help(wants_help ? std::cout : std::cerr);
    return wants_help ? Exit::ok : Exit::usage;
  }
  if (name == "--version") {
    std::cout << version_text() << '\n';
    return Exit::ok;
  }
  std::vector<std::string> names;
  for (const Command* command : all_commands()) {
    names.push_back(command->name);
    if (name != command->name) continue;
    CommandLine line(*command);
    return line.parse(argc - 1, argv + 1) ? command->run(line) : Exit::ok;
  }
  if (std::ranges::count(script_commands, name) > 0)
    refuse("normscope", name, " is a script; run scripts/", name, ".py, which has --help");
  names.insert(names.end(), std::begin(script_commands), std::end(script_commands));
  const std::string meant = name.ends_with(".json") ? "normscope train " + name : nearest(name, names);
  refuse("normscope", "unknown command ", name, "; ",
         meant.empty() ? "`normscope --help` lists all" : "did you mean " + meant + "?");
}

Exit run(int argc, char** argv) try {
  const Exit exit = dispatch(argc, argv);
  std::cout.flush();
  if (std::cout || exit != Exit::ok) return exit;
  print_error("[output] could not write all of the output");
  return Exit::failure;
} catch (const Error& error) {
  print_error(error.what());
  return error.exit;
} catch (const std::bad_alloc&) {
  print_error("[memory] not enough for this; use a smaller model, context or batch_size");
  return Exit::failure;
} catch (const std::filesystem::filesystem_error& error) {
  print_error(text("[file] ", error.path1().string(), ": ", error.code().message()));
  return Exit::failure;
} catch (const std::exception& error) {
  print_error(
      text("[normscope] unexpected: ", error.what(), "; please report it with the command and the config"));
  return Exit::failure;
}

}  // namespace
}  // namespace normscope

int main(int argc, char** argv) {
  normscope::shorten_spins(argv);
  return static_cast<int>(normscope::run(argc, argv));
}
