// What every input is held to, and the entry points of libFuzzer.
#include "fuzz.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>

#include "core/error.h"
#include "io/utf8.h"

namespace {

constexpr long no_limit = std::numeric_limits<long>::max();
long held = 0;  // bytes from operator new since run_guarded() began
long most = no_limit;

}  // namespace

// Both come from malloc, as the matching deletes expect; the compiler cannot see that and warns.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t size) {
  if (size > static_cast<std::size_t>(most)) {
    most = no_limit;
    normscope::fuzz::expect(false, "one allocation is larger than the input's size allows");
  }
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  held += static_cast<long>(malloc_usable_size(memory));
  if (held > most) {
    most = no_limit;  // the message needs memory too
    normscope::fuzz::expect(false, "more memory than the input's size allows");
  }
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void operator delete(void* memory) noexcept {
  if (memory != nullptr) held -= static_cast<long>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace normscope::fuzz {
namespace {

void check_message(const Error& error) {
  const std::string_view message = error.what();
  expect(error.exit == Exit::usage || error.exit == Exit::failure, "an error has an exit code of its own");
  expect(!message.empty() && !message.ends_with('\n'), "an error has words");
  expect(escape_controls(message, "\n") == message, "an error is safe for a terminal");
  for (std::size_t begin = 0; begin < message.size();) {
    const std::string_view line = message.substr(begin, message.find('\n', begin) - begin);
    expect(line.starts_with('[') && line.find("] ") != line.npos, "a line of an error says where");
    begin += line.size() + 1;
  }
}

}  // namespace

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

MemoryFile::MemoryFile()
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
  expect(fd_ >= 0, "a file in memory");
}

MemoryFile::~MemoryFile() { ::close(fd_); }

void MemoryFile::set(std::string_view bytes) const {
  const bool emptied = ::ftruncate(fd_, 0) == 0;
  expect(emptied && ::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
         "a file in memory is written");
}

std::vector<std::string> sound_seeds() {
  std::vector<std::string> all = seeds();
  for (const std::string& seed : all) {
    try {
      run(seed);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      expect(false, "a seed is accepted");
    }
  }
  return all;
}

void run_guarded(std::string_view bytes) {
  held = 0;
  most = memory_limit.fixed + memory_limit.per_byte * static_cast<long>(bytes.size());
  try {
    run(bytes);
    most = no_limit;
  } catch (const Error& error) {
    most = no_limit;
    check_message(error);
  }
}

}  // namespace normscope::fuzz

// Tries the seeds, so that what is made once is made before memory is counted, and writes them where
// libFuzzer is told to begin.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  int number = 0;
  const char* folder = std::getenv("NORMSCOPE_FUZZ_SEEDS");
  for (const std::string& seed : normscope::fuzz::sound_seeds()) {
    if (folder != nullptr) std::ofstream(std::string(folder) + "/seed-" + std::to_string(number++)) << seed;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  normscope::fuzz::run_guarded({reinterpret_cast<const char*>(data), size});
  return 0;
}
