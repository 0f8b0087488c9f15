// Collects the problems of a config, so that one Error reports them all.
#pragma once

#include "core/error.h"
#include "io/utf8.h"

namespace normscope {

class Problems {
 public:
  explicit Problems(const char* topic) : topic_(topic) {}

  // [topic] key: what (where)
  template <class... Parts>
  void add(const std::string& key, const std::string& where, const Parts&... what) {
    add_line(text('[', topic_, "] ", escape_controls(key.substr(0, 100)), ": ", what...,
                  where.empty() ? "" : " (" + where + ")"));
  }

  void add_line(const std::string& line) {
    if (++count_ <= max_lines) lines_ += (lines_.empty() ? "" : "\n") + line;
  }

  // True when enough lines are collected. The problem is then only counted: finding its place and the key
  // that was meant takes time.
  bool only_count() { return count_ >= max_lines && ++count_; }

  // All lines as one Error{usage}.
  void throw_if_any() const {
    if (count_ == 0) return;
    const std::string more = text("\n[", topic_, "] and ", count_ - max_lines, " more");
    throw Error(Exit::usage, count_ > max_lines ? lines_ + more : lines_);
  }

 private:
  static constexpr std::size_t max_lines = 40;
  const char* topic_;
  std::string lines_;
  std::size_t count_ = 0;
};

}  // namespace normscope
