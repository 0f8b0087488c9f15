// normscope eval RUN|FILE: the loss over a whole text, and the losses of n-gram models of the same text.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "data/ngram.h"
#include "io/json.h"
#include "io/utf8.h"
#include "train/step.h"

namespace normscope {
namespace {

Exit run(const CommandLine& line) {
  const std::optional<std::string> file = line.text_of("data");
  const std::unique_ptr<LoadedModel> loaded = load_model(line.positionals()[0], line.step());
  set_up_threads(line, loaded->config.train.threads);

  std::vector<Token> train, text_tokens;
  try {
    Corpus corpus = corpus_of(loaded->config, loaded->vocab);
    const std::string other = text_difference(loaded->corpus_hash, {loaded->config, corpus});
    require(other.empty(), "eval", "the model was trained on ", other,
            file ? "" : "; restore it, or name a text with --data FILE");
    train = std::move(corpus.train);
    text_tokens = std::move(corpus.val);
  } catch (const Error& error) {
    if (!file) throw;  // only --data FILE can do without the corpus
    print_error(text(error.what(), "; no n-gram baselines without it"));
  }
  if (file) {
    text_tokens = loaded->vocab.encode(read_text(*file), "eval", *file);
    if (text_tokens.size() < 2) refuse("eval", *file, " has 1 of the 2 characters that an evaluation needs");
  } else if (text_tokens.empty()) {
    refuse("eval", "the run has no validation split (data.val_fraction is 0); name a text with --data FILE");
  }

  const Index batch_size = std::max<Index>(1, loaded->config.train.batch_size);
  const double loss = *evaluate(loaded->model, text_tokens, batch_size);
  Json found = {{"step", loaded->step}, {"characters", text_tokens.size() - 1}};
  const auto add = [&](const NgramLoss& row) {
    found["nats"][row.name] = row.nats;
    if (line.has("json")) return;
    std::cout << aligned_left(row.name, 10) << fixed(row.nats, 6) << "  "
              << fixed(row.nats / std::log(2.0), 6) << std::endl;
  };
  if (!line.has("json"))
    std::cout << grouped(std::ssize(text_tokens) - 1) << " characters predicted by the weights of step "
              << loaded->step << ": " << escape_controls(loaded->path) << checksum_note(loaded->path)
              << "\n\n          nats      bits\n";
  add({"model", loss});
  try {
    if (!train.empty())
      std::ranges::for_each(*ngram_baselines(train, text_tokens, loaded->vocab.size()), add);
  } catch (const std::exception& error) {  // Error, or no memory
    print_error(left_out("the n-gram baselines", error));
  }
  if (line.has("json")) std::cout << json_text(found);
  if (!std::isfinite(loss))
    throw Error(Exit::diverged, text("[eval] ", loaded->path, ": the loss is ", loss,
                                     "; the weights are not finite or give logits that are not"));
  return Exit::ok;
}

}  // namespace

const Command eval_command = {
    .name = "eval",
    .arguments = "RUN|FILE",
    .purpose = "compute the loss over a whole text, and n-gram baselines",
    .details =
        "The text is the validation split of the model's corpus. The baselines count its training split. "
        "Exit code 3 if the loss is not finite.",
    .options = {{"data", "FILE", "a UTF-8 text to evaluate on instead"},
                step_option,
                {"json", "", "print JSON: nats per character"},
                threads_option},
    .run = run};

}  // namespace normscope
