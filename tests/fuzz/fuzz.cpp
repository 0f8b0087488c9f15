// The checks of every input, and the entry points of libFuzzer.
#include "fuzz.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "core/error.h"

// All of them use malloc and free, std::stable_partition's nothrow form too. The compiler cannot see that
// they match, and warns.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  constexpr std::size_t largest = 8 << 20;  // inputs are a thousand times smaller
  if (size > largest) std::abort();
  return std::malloc(size);
}
void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace normscope::fuzz {
namespace {

void check_message(const Error& error) {
  const std::string_view message = error.what();
  expect(error.exit == Exit::usage || error.exit == Exit::failure, "an error has an exit code of its own");
  expect(!message.empty() && !message.ends_with('\n'), "an error has words");
  expect(message.starts_with('[') && message.find("] ") != message.npos, "an error says where");
}

struct MemoryFile {
  std::string path = "/dev/shm/normscope-fuzz-" + std::to_string(::getpid());
  ~MemoryFile() { std::filesystem::remove(path); }
};

}  // namespace

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

const std::string& file_with(std::string_view bytes) {
  static const MemoryFile file;
  std::ofstream(file.path, std::ios::binary) << bytes;
  return file.path;
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
  try {
    run(bytes);
  } catch (const Error& error) {
    check_message(error);
  }
}

}  // namespace normscope::fuzz

// Writes the seeds to the folder that NORMSCOPE_FUZZ_SEEDS names.
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
