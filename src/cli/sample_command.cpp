// normscope sample RUN|FILE: text from a trained model, streamed.
#include <unistd.h>

#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "io/utf8.h"
#include "logs/run_folder.h"
#include "train/sampler.h"

namespace normscope {
namespace {

Exit run(const CommandLine& line) {
  const std::string& run = line.positionals()[0];
  const Index length = line.number_of<Index>("length", 0, 1'000'000'000, 500);
  const SampleOptions options{line.has("greedy") ? 0 : line.number_of<double>("temperature", 0, 1e6, 1),
                              line.number_of<Index>("top-k", 0, 2'000'000, 0),
                              line.number_of<double>("top-p", 0, 1, 1),
                              line.number_of<Index>("seed", 0, INT64_MAX, 1)};
  const std::unique_ptr<LoadedModel> loaded = load_model(run, line.step());
  set_up_threads(line, loaded->config.train.threads);
  const bool is_final = loaded->path == run || loaded->path.ends_with(model_file);  // as the user expects
  if (isatty(STDERR_FILENO) == 1 || !is_final)
    print_error(text("weights of step ", loaded->step, ": ", loaded->path, checksum_note(loaded->path)));

  const std::string prompt = line.text_of("prompt").value_or("");
  std::vector<Token> tokens = loaded->vocab.encode(prompt, "sample", "--prompt");
  if (tokens.empty()) tokens.push_back(default_prompt(loaded->vocab));

  // A corpus may contain any character. A terminal gets no control characters but newlines and tabs.
  const bool safe = isatty(STDOUT_FILENO) == 1;
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
  return Exit::ok;
}

}  // namespace

const Command sample_command = {
    .name = "sample",
    .arguments = "RUN|FILE",
    .purpose = "write text with a trained model",
    .options = {{"prompt", "TEXT",
                 "what the text begins with (default: a newline or, if the vocabulary has none, its first "
                 "character; not shown)",
                 " start text "},
                {"length", "N", "characters to write (default: 500)",
                 " n tokens num-tokens num_tokens max-tokens max_tokens max-new-tokens max_new_tokens "
                 "max-length max_length "},
                {"temperature", "X", "above 1: bolder, below 1: safer, 0: always the likeliest (default: 1)"},
                {"top-k", "K", "draw among the K likeliest characters (default: 0, all)"},
                {"top-p", "P", "draw among the fewest characters whose probabilities reach P (default: 1)"},
                {"greedy", "",
                 "always the likeliest character: the other choices and the seed have no effect"},
                {"seed", "S", "another seed, another text (default: 1)"},
                step_option,
                threads_option},
    .run = run};

}  // namespace normscope
