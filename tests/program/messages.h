// What several tests of readers share: files, the message of a refusal, and a check of a part of it.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "io/file.h"

namespace normscope::testing {

// A file of a test's own, which goes with it. There is none until something writes it.
struct ScratchFile {
  std::string path;
  explicit ScratchFile(const std::string& name = "scratch")
      : path(std::filesystem::temp_directory_path() / ("normscope-" + std::to_string(::getpid()) + name)) {}
  ScratchFile(const std::string& name, std::string_view bytes) : ScratchFile(name) { set(bytes); }
  ~ScratchFile() { std::filesystem::remove_all(path); }
  void set(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  std::string bytes() const { return read_file(path); }
};

// A folder of a test's own, which goes with all that is in it.
struct ScratchFolder : ScratchFile {
  ScratchFolder() : ScratchFile("folder") { std::filesystem::create_directory(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  // Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  std::ptrdiff_t entries() const { return std::distance(std::filesystem::directory_iterator(path), {}); }
};

// The message with which body() fails, or `accepted`; `exit` 2: the failure is the user's.
template <class Body>
std::string message(const Body& body, std::string_view accepted = "no error", Exit exit = Exit::usage) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.exit == exit);
    return error.what();
  }
  return std::string(accepted);
}

inline bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// doctest prints both sides when they differ.
#define CHECK_HOLDS(whole, part)      \
  do {                                \
    const std::string whole_ = whole; \
    CAPTURE(whole_);                  \
    CHECK(holds(whole_, part));       \
  } while (false)

}  // namespace normscope::testing
