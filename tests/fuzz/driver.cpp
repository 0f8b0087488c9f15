// Runs a fuzz target without libFuzzer: `fuzz_NAME N [FILE...]` feeds it the files, such as the corpus that
// libFuzzer leaves, then N mutations of them and of its seeds, the same ones each time. An input that breaks
// something is left in `fuzz_NAME.crash`.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "core/random.h"
#include "core/text.h"
#include "fuzz.h"
#include "io/file.h"

using namespace normscope;
using namespace std::string_view_literals;

namespace {

constexpr std::size_t longest = 4096;
constexpr unsigned seconds_per_input = 20;
// Bytes, brackets and numbers that readers are likely to mistake.
const std::vector<std::string> words = split(
    "\0 \xFF \xEF\xBB\xBF \xED\xA0\x80 \r\n \" { [ ] } , : 0 -1 1e999 NaN "
    "9223372036854775808 18446744073709551616 null \\u0000"sv,
    ' ');

std::string input;       // the one that runs
std::string crash_file;  // its place if it breaks something

void leave_input(int signal_number) {  // only what a handler may call
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  [[maybe_unused]] const ssize_t written = ::write(file, input.data(), input.size());
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void feed() {
  ::alarm(seconds_per_input);
  fuzz::run_guarded(input);
}

// Makes `input` of a seed by one to eight changes: bits and bytes, parts cut out, doubled or taken from
// another seed, words.
void mutate(const std::vector<std::string>& seeds, const RandomStream& stream) {
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(stream.below(drawn++, static_cast<Index>(n)));
  };
  input = seeds[below(seeds.size())];
  for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
    const std::size_t at = below(input.size() + 1), rest = input.size() - at;
    const std::size_t part = below(std::min<std::size_t>(rest, 32) + 1);
    const std::string& other = seeds[below(seeds.size())];
    switch (below(6)) {
      case 0:
        if (rest > 0) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (rest > 0) input[at] = static_cast<char>(below(256));
        break;
      case 2:
        input.erase(at, part);
        break;
      case 3:
        input.insert(at, input.substr(at, part));
        break;
      case 4:
        input.insert(at, other.substr(below(other.size() + 1), below(64)));
        break;
      default:
        input.replace(at, part, words[below(std::size(words))]);
    }
  }
  input.resize(std::min(input.size(), longest));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string_view program = argv[0];
  crash_file = std::string(program.substr(program.rfind('/') + 1)) + ".crash";
  std::vector<std::string> seeds = fuzz::sound_seeds();
  for (const int number : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
    std::signal(number, leave_input);
  for (int i = 2; i < argc; ++i) {
    input = read_file(argv[i]);
    seeds.push_back(input);
    feed();
  }
  const Index count = std::atol(argv[1]);
  const RandomStream stream(1, "fuzz");
  for (Index i = 0; i < count; ++i) {
    mutate(seeds, stream.at(i));
    feed();
  }
  std::printf("%ld inputs\n", static_cast<long>(count));
  return 0;
}
