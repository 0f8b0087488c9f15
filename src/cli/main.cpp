// normscope COMMAND [ARGS]: finds the command, prints errors, sets the exit code.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "kernels/simd.h"
#include "logs/record.h"

namespace normscope {

std::span<const Command* const> all_commands() {
  static constexpr const Command* all[] = {&train_command, &probe_command,   &sample_command,
                                           &eval_command,  &explain_command, &check_command,
                                           &bench_command, &config_command};
  return all;
}

namespace {

// Scripts whose names users give as commands: scripts/NAME.py.
constexpr std::string_view script_commands[] = {"compare", "measure", "predict", "sweep"};

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

// True if the environment says how OpenMP's threads spin or to which processors they are bound, or if
// valgrind runs the program, which would not follow it into a second start. Only GNU's OpenMP needs it.
[[maybe_unused]] bool keeps_openmp_as_it_is() {
  constexpr const char* settings[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                      "GOMP_CPU_AFFINITY"};
  const char* preload = std::getenv("LD_PRELOAD");
  return std::ranges::any_of(settings, is_set) ||
         (preload != nullptr && std::string_view(preload).find("vgpreload") != std::string_view::npos);
}

// Shortens the spins of threads that have reached the end of a parallel loop before the others: by default
// they occupy, for milliseconds, processors that busy programs or the loop's last threads need. GNU's OpenMP
// reads GOMP_SPINCOUNT only when it is loaded, so the program sets it to 1000 spins and starts
// itself again, once. kernels/NOTES.md lists what else was tried.
void shorten_spins([[maybe_unused]] char** argv) {
#if defined(KMP_VERSION_MAJOR)
  if (!is_set("KMP_BLOCKTIME") && !is_set("OMP_WAIT_POLICY")) kmp_set_blocktime(0);
#else
  if (keeps_openmp_as_it_is()) return;
  std::error_code ignored;  // without /proc the spins stay as they are
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (program.filename().string().starts_with("ld-")) return;  // the loader was given the program's name
  if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0) execv(program.c_str(), argv);
#endif
}

void print_help(std::ostream& out) {
  out << "normscope " << NORMSCOPE_VERSION
      << ": small decoder transformers, and what the place of their norms does to every layer\n\n"
         "usage: normscope COMMAND [ARGUMENTS]\n\n";
  for (const Command* command : all_commands())
    out << "  " << aligned_left(command->name + " " + command->arguments, 25) << command->purpose << '\n';
  out << "\nAs scripts:";
  for (const std::string_view name : script_commands) out << " scripts/" << name << ".py";
  out << "\n\nThe environment's NORMSCOPE_ISA chooses the instruction set of the kernels (default: the "
         "fastest):\n ";
  for (const InstructionSet& set : instruction_sets())
    out << ' ' << set.name << (set.is_supported ? "" : " (not on this machine)");
  out << "\n\n`normscope COMMAND --help` says more. Start with: build/normscope train configs/quickstart.json\n";
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
    if (command->computes) shorten_spins(argv);
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
  print_error("[memory] not enough for this; use a smaller model, context or batch_size, or a shorter text");
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
  return static_cast<int>(normscope::run(argc, argv));
}
