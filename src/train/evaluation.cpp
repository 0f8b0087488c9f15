#include "train/evaluation.h"

namespace normscope {

double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches,
                Communicator& ranks) {
  const Index characters = std::ssize(text), context = model.config().context;
  const std::vector<Window> windows = batches == 0
                                          ? evaluation_windows(characters, context)
                                          : evaluation_windows(characters, context, batches * batch_size);
  std::vector<std::span<const Window>> passes;  // of equal length each
  for (auto left = std::span(windows); !left.empty(); left = left.subspan(passes.back().size())) {
    std::size_t rows = 1;
    while (rows < left.size() && rows < static_cast<std::size_t>(batch_size) &&
           left[rows].length == left[0].length)
      ++rows;
    passes.push_back(left.first(rows));
  }

  const std::vector<Index> cut = even_cut(std::ssize(passes), ranks.size());
  const auto rank = static_cast<std::size_t>(ranks.rank());
  std::vector<double> losses(passes.size());
  std::vector<Token> tokens, targets;
  for (auto i = static_cast<std::size_t>(cut[rank]); i < static_cast<std::size_t>(cut[rank + 1]); ++i) {
    const Index length = passes[i][0].length;
    tokens.resize(passes[i].size() * static_cast<std::size_t>(length));
    targets.resize(tokens.size());
    Index at = 0;
    for (const Window& window : passes[i]) {
      copy_window(text, window, tokens.data() + at, targets.data() + at);
      at += length;
    }
    losses[i] = model.loss({tokens, targets, length});
  }
  ranks.complete(losses, cut);

  double total = 0;
  Index predicted = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Index characters_of_pass = std::ssize(passes[i]) * passes[i][0].length;
    total += losses[i] * static_cast<double>(characters_of_pass);
    predicted += characters_of_pass;
  }
  return total / static_cast<double>(predicted);
}

}  // namespace normscope
