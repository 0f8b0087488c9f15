#include "cli/commands.h"

// By default cxxopts splits list options and positionals at commas; no argument can contain a NUL byte.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <algorithm>
#include <charconv>
#include <cxxopts.hpp>
#include <iostream>

#include "config/fields.h"
#include "core/text.h"
#include "io/utf8.h"
#include "logs/record.h"

namespace normscope {
namespace {

constexpr const char* positional_name = "arguments";

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
    value.empty() ? parser.add_options()(name, help) : parser.add_options()(name, help, words(), value);
  }
  return parser;
}

void require_values(const Command& command, int argc, char** argv) {
  for (const Option& option : command.options) {
    const std::string name = "--" + option.long_name();
    for (int i = 1; i < argc; ++i) {
      if (option.value.empty() && std::string_view(argv[i]).starts_with(name + "="))
        refuse(command.name, name, " takes no value");
      if (!option.value.empty() && argv[i] == name && i + 1 == argc)
        refuse(command.name, name, " needs a value: ", option.value);
    }
  }
}

// The message about an unknown option. A config key may be meant: other programs have --lr for --set
// train.lr=.
std::string unknown_option(const Command& command, const std::string& argument) {
  const std::size_t equals = std::min(argument.find('='), argument.size());
  const std::string given = argument.substr(0, equals);
  const std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : command.options) names.push_back(option.long_name());
  const bool has_keys = std::ranges::count(names, set_option.name) > 0;
  const std::string option = nearest(name, names), key = has_keys ? nearest_key(name) : "";
  const std::string value = equals < argument.size() ? argument.substr(equals + 1) : "VALUE";
  const std::string hint = !option.empty() ? text("did you mean --", option, "?")
                           : !key.empty() ? text("did you mean --set ", key, "=", escape_controls(value), "?")
                                          : text("`normscope ", command.name, " --help` lists all");
  return text("[", command.name, "] unknown option ", escape_controls(given), "; ", hint);
}

}  // namespace

bool CommandLine::parse(int argc, char** argv) {
  cxxopts::Options parser = parser_of(command_);
  for (const std::string_view argument : std::span(argv + 1, argv + argc)) {  // --help works despite errors
    if (argument == "--") break;
    const bool wants_help = argument == "--help" || argument == "-h";
    if (!wants_help && argument != "--version") continue;
    std::cout << (wants_help ? parser.help() : version_text() + '\n');
    return false;
  }
  require_values(command_, argc, argv);
  try {
    const cxxopts::ParseResult parsed = parser.parse(argc, argv);
    for (const cxxopts::KeyValue& one : parsed.arguments()) given_[one.key()].push_back(one.value());
  } catch (const cxxopts::exceptions::no_such_option&) {
    parser.allow_unrecognised_options();
    std::vector<std::string> lines;
    const cxxopts::ParseResult parsed = parser.parse(argc, argv);
    for (const std::string& unknown : parsed.unmatched()) lines.push_back(unknown_option(command_, unknown));
    throw Error(Exit::usage, join(lines, "\n"));
  } catch (const cxxopts::exceptions::exception& error) {
    std::string what = error.what();  // Argument ‘x’ failed to parse
    for (const std::string_view quote : {"‘", "’"}) {
      for (std::size_t at = 0; (at = what.find(quote, at)) != what.npos;) what.replace(at, quote.size(), "'");
    }
    refuse(command_.name, what, "; see `normscope ", command_.name, " --help`");
  }
  positionals_ = all_of(positional_name);
  require_positionals();
  return true;
}

void CommandLine::require_positionals() const {
  const std::string& expected = command_.arguments;
  const bool optional = expected.starts_with('['), many = expected.ends_with("...");
  const std::size_t count = positionals_.size();
  if (count == 1 || (count == 0 && optional) || (count > 1 && many)) return;
  for (const std::string& given : positionals_) {
    if (given.find('=') != given.npos)
      refuse(command_.name, "unexpected argument; did you mean --set ", escape_controls(given), "?");
  }
  refuse(command_.name, "got ", count, count == 1 ? " argument" : " arguments", "; expected ", expected,
         "; see `normscope ", command_.name, " --help`");
}

void CommandLine::require_one(const std::string& option, const std::string& other) const {
  if (has(option) && has(other)) refuse(command_.name, "give --", option, " or --", other, ", not both");
}

std::vector<std::string> CommandLine::all_of(const std::string& name) const {
  return has(name) ? given_.at(name) : std::vector<std::string>{};
}

std::optional<std::string> CommandLine::text_of(const std::string& name) const {
  const std::vector<std::string> given = all_of(name);
  if (given.empty()) return std::nullopt;
  if (given.size() > 1) refuse(command_.name, "--", name, " is given ", given.size(), " times; give it once");
  return given[0];
}

template <class Number>
Number CommandLine::number_of(const std::string& name, Number min, Number max, Number otherwise) const {
  const std::optional<std::string> text = text_of(name);
  if (!text) return otherwise;
  Number value{};
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  // Written so that NaN is refused.
  if (error == std::errc() && end == text->data() + text->size() && value >= min && value <= max)
    return value;
  refuse(command_.name, "--", name, ": got '", escape_controls(*text), "'; expected a number from ", min,
         " to ", max);
}

template Index CommandLine::number_of(const std::string&, Index, Index, Index) const;
template double CommandLine::number_of(const std::string&, double, double, double) const;

}  // namespace normscope
