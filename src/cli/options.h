// The command line of one command: its options, its help, errors that name what was meant.
#pragma once

// cxxopts splits list options and positionals at commas; a NUL byte cannot be in an argument.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace normscope {

class CommandLine {
 public:
  // `arguments`: the positionals as help shows them, such as "CONFIG" or "RUN...".
  CommandLine(const std::string& command, const std::string& purpose, const std::string& arguments);

  // Options: a flag, or a value shown in help as `value`. Short form by "q,quiet".
  CommandLine& flag(const std::string& name, const std::string& help);
  CommandLine& option(const std::string& name, const std::string& value, const std::string& help);

  // Reads the arguments after the command's name. False: --help was asked for and has been printed.
  // Usage Errors: unknown options (with the nearest known one), missing values, a wrong number of
  // positionals.
  bool parse(int argc, char** argv, std::size_t min_positionals, std::size_t max_positionals);

  const std::vector<std::string>& positionals() const { return positionals_; }
  bool has(const std::string& name) const { return result_->count(name) > 0; }
  std::optional<std::string> text_of(const std::string& name) const;
  std::vector<std::string> all_of(const std::string& name) const;

  // A number within [least, most]; usage Error otherwise.
  std::optional<Index> integer_of(const std::string& name, Index least, Index most) const;
  std::optional<double> real_of(const std::string& name, double least, double most) const;

 private:
  std::string command_, arguments_;
  cxxopts::Options options_;
  struct Option {
    std::string name;   // long form
    std::string value;  // as help shows it; empty: takes none
  };
  // Refuses an option or a positional that is none, with what may have been meant.
  [[noreturn]] void refuse_option(const std::string& argument, const char* next) const;
  [[noreturn]] void refuse_count() const;

  std::vector<Option> known_;
  std::optional<cxxopts::ParseResult> result_;
  std::vector<std::string> positionals_;
};

}  // namespace normscope
