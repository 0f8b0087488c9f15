// What fuzz targets share. A target is one file beside this one: sound inputs to start from, and what must
// hold whatever the bytes are. The same file runs under libFuzzer (NORMSCOPE_FUZZ) and, in every build, under
// the small mutator of driver.cpp.
//
// Around each input, fuzz.cpp holds what all readers owe: they throw nothing but Error, whose lines are
// `[where] what` and safe for a terminal, and hold no more memory than the input's size allows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace normscope::fuzz {

// --- what a target says ---

// Inputs that the reader accepts.
std::vector<std::string> seeds();

// Reads `bytes`, checks what comes of it. Error: they were refused.
void run(std::string_view bytes);

// The most that run() may hold at once: `fixed` bytes and `per_byte` for each of the input.
struct MemoryLimit {
  long fixed, per_byte;
};
extern const MemoryLimit memory_limit;

// --- what helps it ---

// Ends the program, loudly, unless `holds`.
void expect(bool holds, const char* what);

// A file that lies in memory alone, for readers and writers that take a path.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void set(std::string_view bytes) const;

 private:
  int fd_;
  std::string path_;
};

// --- what runs it ---

// The seeds, each of them tried.
std::vector<std::string> sound_seeds();

// Runs one input and holds what all readers owe.
void run_guarded(std::string_view bytes);

}  // namespace normscope::fuzz
