// What stands out in a comparison, and what cannot be concluded from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare_groups.h"

namespace normscope {

class Comparison {
 public:
  // `names`: what the groups are called, printable. The groups must outlive this.
  Comparison(const std::vector<Group>& groups, std::vector<std::string> names);

  // Differences seed by seed between the first group that has two seeds done and each other one; a heading
  // first. Nothing where no two groups have comparable losses and two seeds each.
  std::vector<std::string> paired_lines() const;

  std::vector<std::string> remarks() const;

 private:
  // The text that a group learns from and is judged on, as it is now.
  struct Text {
    std::uint64_t hash;
    Index vocab;
    std::optional<double> unigram;  // nats: what counting letters achieves on its validation part
  };
  using Lines = std::vector<std::string>;

  void say_differences(Lines& lines, std::size_t g) const;
  void say_unequal(Lines& lines, std::size_t g) const;
  void say_ended_early(Lines& lines, std::size_t g) const;
  void say_figures(Lines& lines, std::size_t g) const;
  std::string other_text(std::size_t a, std::size_t b) const;
  std::string other_vocabulary(std::size_t a, std::size_t b) const;
  bool comparable(std::size_t a, std::size_t b) const;

  const std::vector<Group>& groups_;
  std::vector<std::string> names_;
  std::string first_;                       // what the first group is called beside another one
  std::vector<std::optional<Text>> texts_;  // nothing where files cannot be read any more
};

}  // namespace normscope
