// Runs a fuzz target without libFuzzer: `fuzz_NAME N [FILE...]` feeds it N inputs made of its seeds and of the
// files, such as the corpus that libFuzzer leaves, the same ones each time; `fuzz_NAME FILE...` feeds it files
// as they are. An input that breaks something is left in `fuzz_NAME.crash`.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/random.h"
#include "fuzz.h"
#include "io/file.h"

using namespace normscope;

namespace {

constexpr std::size_t longest = 4096;
constexpr unsigned patience = 20;  // seconds an input
constexpr std::array<std::string_view, 20> words = {std::string_view("\0", 1),
                                                    "\xFF",
                                                    "\xEF\xBB\xBF",
                                                    "\xED\xA0\x80",
                                                    "\r\n",
                                                    "\"",
                                                    "{",
                                                    "[",
                                                    "]",
                                                    "}",
                                                    ",",
                                                    ":",
                                                    "0",
                                                    "-1",
                                                    "1e999",
                                                    "NaN",
                                                    "9223372036854775808",
                                                    "18446744073709551616",
                                                    "null",
                                                    "\\u0000"};

std::string input;       // the one that runs
std::string crash_file;  // where it is left

void leave_input(int signal_number) {  // only what a handler may call
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const bool left = file >= 0 && ::write(file, input.data(), input.size()) >= 0;
  constexpr std::string_view said = "the input is left in ";
  [[maybe_unused]] const bool is_said = left && ::write(2, said.data(), said.size()) > 0 &&
                                        ::write(2, crash_file.data(), crash_file.size()) > 0 &&
                                        ::write(2, "\n", 1) > 0;
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void feed() {
  ::alarm(patience);
  fuzz::run_guarded(input);
}

// Whole numbers drawn one after another.
class Dice {
 public:
  explicit Dice(const RandomStream& stream) : stream_(stream) {}
  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>(stream_.below(drawn_++, static_cast<Index>(n)));
  }

 private:
  RandomStream stream_;
  std::uint64_t drawn_ = 0;
};

// A seed after one to eight changes: bits and bytes, parts cut out, doubled or taken from another seed, words
// that readers trip over.
void mutate(const std::vector<std::string>& seeds, Dice dice) {
  input = seeds[dice.below(seeds.size())];
  for (std::size_t changes = 1 + dice.below(8); changes > 0; --changes) {
    const std::size_t at = dice.below(input.size() + 1), rest = input.size() - at;
    const std::size_t part = dice.below(std::min<std::size_t>(rest, 32) + 1);
    const std::string& other = seeds[dice.below(seeds.size())];
    const std::size_t from = dice.below(other.size() + 1);
    switch (dice.below(6)) {
      case 0:
        if (rest > 0) input[at] = static_cast<char>(input[at] ^ (1 << dice.below(8)));
        break;
      case 1:
        if (rest > 0) input[at] = static_cast<char>(dice.below(256));
        break;
      case 2:
        input.erase(at, part);
        break;
      case 3:
        input.insert(at, input.substr(at, part));
        break;
      case 4:
        input.insert(at, other.substr(from, dice.below(64)));
        break;
      default:
        input.replace(at, part, words[dice.below(words.size())]);
    }
  }
  input.resize(std::min(input.size(), longest));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds = fuzz::sound_seeds();
  const std::string_view program = argv[0];
  crash_file = std::string(program.substr(program.rfind('/') + 1)) + ".crash";
  for (const int number : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) ::signal(number, leave_input);

  Index count = 0;
  const std::string_view first = argc > 1 ? argv[1] : "";
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), count);
  const bool counted = error == std::errc() && end == first.data() + first.size();
  for (int i = counted ? 2 : 1; i < argc; ++i) {
    input = read_file(argv[i]);
    if (counted) {
      seeds.push_back(input);
    } else {
      feed();
    }
  }
  const RandomStream stream(1, "fuzz");
  for (Index i = 0; i < count; ++i) {
    mutate(seeds, Dice(stream.at(static_cast<std::uint64_t>(i))));
    feed();
  }
  if (counted) std::printf("%ld inputs\n", static_cast<long>(count));
  return argc > 1 ? 0 : 2;
}
