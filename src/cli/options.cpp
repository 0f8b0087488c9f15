#include "cli/options.h"

#include <charconv>
#include <iostream>

#include "core/error.h"
#include "core/nearest.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr const char* positional_name = "arguments";

template <class Number>
Number parse_number(const std::string& command, const std::string& name, const std::string& text,
                    Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Written so that NaN is refused.
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    refuse(command, "--", name, ": got '", printable(text), "'; expected a number from ", least, " to ",
           most);
  }
  return value;
}

}  // namespace

CommandLine::CommandLine(const std::string& command, const std::string& purpose, const std::string& arguments)
    : command_(command), arguments_(arguments), options_("normscope " + command, purpose) {
  options_.custom_help("[OPTIONS]").positional_help(arguments).set_width(110);
  options_.add_options()(positional_name, "", cxxopts::value<std::vector<std::string>>());
  options_.parse_positional({positional_name});
  flag("h,help", "show this help");
  flag("version", "show the version");
}

CommandLine& CommandLine::flag(const std::string& name, const std::string& help) {
  options_.add_options()(name, help);
  names_.push_back(name.substr(name.find(',') + 1));
  flags_.push_back(names_.back());
  return *this;
}

CommandLine& CommandLine::option(const std::string& name, const std::string& value, const std::string& help) {
  options_.add_options()(name, help, cxxopts::value<std::vector<std::string>>(), value);
  names_.push_back(name.substr(name.find(',') + 1));
  return *this;
}

bool CommandLine::parse(int argc, char** argv, std::size_t least, std::size_t most) {
  for (int i = 1; i < argc; ++i) {  // before anything is checked: help always helps
    const std::string_view argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << options_.help();
      return false;
    }
    if (argument == "--version") {
      std::cout << "normscope " << NORMSCOPE_VERSION << '\n';
      return false;
    }
    for (const std::string& flag : flags_) {
      if (argument.starts_with("--" + flag + "=")) refuse(command_, "--", flag, " takes no value");
    }
  }
  try {
    result_ = options_.parse(argc, argv);
  } catch (const cxxopts::exceptions::no_such_option& error) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (!argument.starts_with("-") || argument == "-") continue;
      const std::string name = argument.substr(argument.find_first_not_of('-'),
                                               argument.find('=') - argument.find_first_not_of('-'));
      if (name.size() > 1 && std::find(names_.begin(), names_.end(), name) == names_.end()) {
        const std::string meant = nearest_or_begun(name, names_);
        refuse(command_, "unknown option --", printable(name), "; ",
               meant.empty() ? "`normscope " + command_ + " --help` lists all"
                             : "did you mean --" + meant + "?");
      }
    }
    refuse(command_, error.what(), "; `normscope ", command_, " --help` lists all");
  } catch (const cxxopts::exceptions::exception& error) {
    refuse(command_, error.what(), "; see `normscope ", command_, " --help`");
  }
  positionals_ = all_of(positional_name);
  if (positionals_.size() < least || positionals_.size() > most) {
    refuse(command_, "got ", positionals_.size(), positionals_.size() == 1 ? " argument" : " arguments",
           "; expected ", arguments_.empty() ? "none" : arguments_, "; see `normscope ", command_,
           " --help`");
  }
  return true;
}

std::vector<std::string> CommandLine::all_of(const std::string& name) const {
  return has(name) ? (*result_)[name].as<std::vector<std::string>>() : std::vector<std::string>{};
}

std::optional<std::string> CommandLine::text_of(const std::string& name) const {
  const std::vector<std::string> given = all_of(name);
  if (given.empty()) return std::nullopt;
  if (given.size() > 1) refuse(command_, "--", name, " is given ", given.size(), " times; give it once");
  return given[0];
}

std::optional<Index> CommandLine::integer_of(const std::string& name, Index least, Index most) const {
  const std::optional<std::string> text = text_of(name);
  if (!text) return std::nullopt;
  return parse_number<Index>(command_, name, *text, least, most);
}

std::optional<double> CommandLine::real_of(const std::string& name, double least, double most) const {
  const std::optional<std::string> text = text_of(name);
  if (!text) return std::nullopt;
  return parse_number<double>(command_, name, *text, least, most);
}

}  // namespace normscope
