// normscope sample RUN|FILE: text from a trained model, streamed.
#include <unistd.h>

#include <iostream>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "io/utf8.h"
#include "train/checkpoint.h"
#include "train/sampler.h"

namespace normscope {

int sample_command(int argc, char** argv) {
  CommandLine line("sample", "Writes text with a trained model, one character at a time.", "RUN|FILE");
  line.option("prompt", "TEXT", "what the text begins with (default: a newline, not shown)");
  line.option("length", "N", "characters to write (default: 500)");
  line.option("temperature", "X", "above 1: bolder, below 1: safer, 0: always the likeliest (default: 1)");
  line.option("top-k", "K", "draw among the K likeliest characters (default: 0, all)");
  line.option("top-p", "P", "draw among the fewest characters whose probabilities reach P (default: 1)");
  line.flag("greedy", "always the likeliest character");
  line.option("seed", "S", "another seed, another text (default: 1)");
  line.option("threads", "N", "threads (default: OMP_NUM_THREADS, the cores)");
  if (!line.parse(argc, argv, 1, 1)) return 0;

  const Index length = line.integer_of("length", 0, 1'000'000'000).value_or(500);
  SampleOptions options{
      line.real_of("temperature", 0, 1e6).value_or(1.0), line.integer_of("top-k", 0, 2'000'000).value_or(0),
      line.real_of("top-p", 0, 1).value_or(1.0), line.integer_of("seed", 0, INT64_MAX).value_or(1)};
  if (line.has("greedy")) options.temperature = 0;
  set_up_threads(line, 0);
  const std::unique_ptr<LoadedModel> loaded = load_model(line.positionals()[0]);
  if (isatty(STDERR_FILENO) == 1) print_error(text("weights after step ", loaded->step, ": ", loaded->path));

  const std::string prompt = line.text_of("prompt").value_or("");
  std::vector<Token> tokens = loaded->vocab.encode_utf8(prompt, "sample");
  if (tokens.empty()) tokens.push_back(default_prompt(loaded->vocab));

  // A corpus may hold anything; a terminal is shown no control characters but line ends and tabs.
  const bool safe = stdout_is_terminal();
  const auto show = [&](const std::string& text) {
    std::cout << (safe ? escape_controls(text, "\n\t") : text) << std::flush;
  };
  show(prompt);
  if (length > 0) {
    Sampler sampler(loaded->model, tokens, options);
    for (Index i = 0; i < length && std::cout; ++i) {
      const Token token = sampler.next();
      show(loaded->vocab.decode({&token, 1}));
    }
  }
  std::cout << '\n';
  return static_cast<int>(Exit::ok);
}

}  // namespace normscope
