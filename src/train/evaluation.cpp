#include "train/evaluation.h"

namespace normscope {

double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches,
                Communicator& ranks) {
  const Index characters = std::ssize(text), context = model.config().context;
  const std::vector<Window> windows = batches == 0
                                          ? evaluation_windows(characters, context)
                                          : evaluation_windows(characters, context, batches * batch_size);
  const std::vector<std::span<const Window>> passes = window_groups(windows, batch_size);
  const std::vector<Index> cut = even_cut(std::ssize(passes), ranks.size());
  const auto rank = static_cast<std::size_t>(ranks.rank());
  std::vector<double> losses(passes.size());
  for (auto i = static_cast<std::size_t>(cut[rank]); i < static_cast<std::size_t>(cut[rank + 1]); ++i) {
    const WindowBatch batch(text, passes[i]);
    losses[i] = model.loss({batch.tokens, batch.targets, batch.context});
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
