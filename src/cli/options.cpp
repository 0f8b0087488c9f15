#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "config/fields.h"
#include "core/error.h"
#include "core/nearest.h"
#include "io/utf8.h"
#include "train/environment.h"

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
    refuse(command, "--", name, ": got '", escape_controls(text), "'; expected a number from ", least, " to ",
           most);
  }
  return value;
}

// "lr" of --lr=1.
std::string_view name_of_option(std::string_view argument) {
  const std::size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
  return argument.substr(begin, argument.find('=') - begin);
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
  known_.push_back({name.substr(name.find(',') + 1), ""});
  return *this;
}

CommandLine& CommandLine::option(const std::string& name, const std::string& value, const std::string& help) {
  options_.add_options()(name, help, cxxopts::value<std::vector<std::string>>(), value);
  known_.push_back({name.substr(name.find(',') + 1), value});
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
      std::cout << version_text() << '\n';
      return false;
    }
    for (const Option& option : known_) {
      if (option.value.empty() && argument.starts_with("--" + option.name + "="))
        refuse(command_, "--", option.name, " takes no value");
      if (!option.value.empty() && argument == "--" + option.name && i + 1 == argc)
        refuse(command_, "--", option.name, " needs a value: ", option.value);
    }
  }
  try {
    result_ = options_.parse(argc, argv);
  } catch (const cxxopts::exceptions::exception& error) {
    std::string what = error.what();  // Option ‘lr’ does not exist
    for (const std::string_view quote : {"‘", "’"}) {
      for (std::size_t at = 0; (at = what.find(quote, at)) != what.npos;) what.replace(at, quote.size(), "'");
    }
    const bool unknown = dynamic_cast<const cxxopts::exceptions::no_such_option*>(&error) != nullptr;
    for (int i = 1; unknown && i < argc; ++i) {
      const std::string quoted = "'" + std::string(name_of_option(argv[i])) + "'";
      if (argv[i][0] == '-' && what.find(quoted) != what.npos) refuse_option(argv[i], argv[i + 1]);
    }
    refuse(command_, what, "; see `normscope ", command_, " --help`");
  }
  positionals_ = all_of(positional_name);
  if (positionals_.size() < least || positionals_.size() > most) refuse_count();
  return true;
}

void CommandLine::refuse_option(const std::string& argument, const char* next) const {
  const std::string name(name_of_option(argument));
  const std::string shown = argument.substr(0, argument.find_first_not_of('-')) + escape_controls(name);
  std::vector<std::string> names;
  for (const Option& option : known_) names.push_back(option.name);
  std::string meant = nearest_or_begun(name, names);
  if (!meant.empty()) meant = "--" + meant;
  // A config key given as an option: most programs have --lr where this one has --set train.lr=.
  const std::string key = key_called(name);
  if (!key.empty() && std::find(names.begin(), names.end(), "set") != names.end()) {
    const std::size_t equals = argument.find('=');
    const std::string value = equals != argument.npos ? argument.substr(equals + 1)
                              : next != nullptr && !std::string_view(next).starts_with("-") ? next
                                                                                            : "VALUE";
    meant = "--set " + key + "=" + escape_controls(value);
  }
  refuse(command_, "unknown option ", shown, "; ",
         meant.empty() ? "`normscope " + command_ + " --help` lists all" : "did you mean " + meant + "?");
}

void CommandLine::refuse_count() const {
  std::string hint = "; see `normscope " + command_ + " --help`";
  for (const std::string& given : positionals_) {
    const std::size_t equals = given.find('=');
    const std::string key = equals == given.npos ? "" : key_called(given.substr(0, equals));
    if (!key.empty()) hint = "; did you mean --set " + key + escape_controls(given.substr(equals)) + "?";
  }
  refuse(command_, "got ", positionals_.size(), positionals_.size() == 1 ? " argument" : " arguments",
         "; expected ", arguments_.empty() ? "none" : arguments_, hint);
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
