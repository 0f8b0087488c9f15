#include "train/evaluation.h"

namespace normscope {

double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches) {
  const Index characters = std::ssize(text), context = model.config().context;
  const std::vector<Window> windows = batches == 0
                                          ? evaluation_windows(characters, context)
                                          : evaluation_windows(characters, context, batches * batch_size);
  std::vector<Token> tokens, targets;
  double total = 0;
  Index predicted = 0;
  for (std::size_t i = 0; i < windows.size();) {
    const Index length = windows[i].length;
    tokens.clear();
    targets.clear();
    for (Index row = 0; row < batch_size && i < windows.size() && windows[i].length == length; ++row, ++i) {
      const std::size_t at = tokens.size();
      tokens.resize(at + length);
      targets.resize(at + length);
      copy_window(text, windows[i], tokens.data() + at, targets.data() + at);
    }
    total += model.loss({tokens, targets, length}) * static_cast<double>(tokens.size());
    predicted += std::ssize(tokens);
  }
  return total / static_cast<double>(predicted);
}

}  // namespace normscope
