// normscope completion SHELL: what completes its command lines, made of the tables of commands and keys.
#include <iostream>

#include "cli/commands.h"
#include "config/fields.h"
#include "io/utf8.h"

namespace normscope {
namespace {

// "model.norm= model.n_layer= ...": the completions of --set.
std::string set_words() {
  std::string words;
  for (const Field& field : fields()) words += (words.empty() ? "" : " ") + field.key + "=";
  return words;
}

std::vector<Option> options_of(const Command& command) {
  std::vector<Option> all = command.options;
  all.push_back({"help", "", "show this help"});
  return all;
}

void print_bash() {
  std::string names;
  for (const Command* command : all_commands()) names += command->name + " ";
  std::cout << "_normscope() {\n"
               "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
               "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    words='"
            << names
            << "'\n"
               "  elif [ \"$before\" = --set ]; then\n    compopt -o nospace 2>/dev/null\n    words='"
            << set_words()
            << "'\n"
               "  elif [ \"${current#-}\" != \"$current\" ]; then\n    case ${COMP_WORDS[1]} in\n";
  for (const Command* command : all_commands()) {
    std::cout << "      " << command->name << ") words='";
    for (const Option& option : options_of(*command)) std::cout << " --" << option.long_name();
    std::cout << "' ;;\n";
  }
  std::cout << "    esac\n"
               "  else\n    words=$(compgen -G 'runs/*' 2>/dev/null)\n  fi\n"
               "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\n"
               "complete -o default -F _normscope normscope\n";
}

// Quoted for fish.
std::string fish_word(std::string_view words) {
  std::string out = "'";
  for (const char c : words) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

void print_fish() {
  for (const Command* command : all_commands()) {
    std::cout << "complete -c normscope -n __fish_use_subcommand -a " << command->name << " -d "
              << fish_word(command->purpose) << '\n';
    const std::string here = "complete -c normscope -n '__fish_seen_subcommand_from " + command->name + "'";
    for (const Option& option : options_of(*command))
      std::cout << here << " -l " << option.long_name() << (option.value.empty() ? "" : " -r") << " -d "
                << fish_word(option.help)
                << (option.name == set_option.name ? " -f -a " + fish_word(set_words()) : "") << '\n';
    std::cout << here << " -a '(path filter -d runs/* 2>/dev/null)'\n";
  }
}

Exit run(const CommandLine& line) {
  const std::string& shell = line.positionals()[0];
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    refuse("completion", "got ", escape_controls(shell), "; expected bash, zsh or fish");
  if (shell == "zsh") std::cout << "autoload -U +X bashcompinit && bashcompinit\n";
  shell == "fish" ? print_fish() : print_bash();
  return Exit::ok;
}

}  // namespace

const Command completion_command = {
    .name = "completion",
    .arguments = "SHELL",
    .purpose = "completion of commands, options, keys and run folders, for bash, zsh or fish",
    .details =
        "bash: source <(normscope completion bash); zsh: source <(normscope completion zsh);\n"
        "fish: normscope completion fish | source",
    .options = {},
    .run = run};

}  // namespace normscope
