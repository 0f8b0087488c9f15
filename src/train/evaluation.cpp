#include "train/evaluation.h"

namespace normscope {

double evaluate(Model<float>& model, std::span<const Token> text, std::span<const Window> windows,
                Index batch_size) {
  std::vector<Token> tokens, targets;
  double total = 0;
  Index characters = 0;
  std::size_t first = 0;
  while (first < windows.size()) {
    const Index length = windows[first].length;
    std::size_t end = first;
    while (end < windows.size() && windows[end].length == length &&
           static_cast<Index>(end - first) < batch_size)
      ++end;
    const Index rows = static_cast<Index>(end - first) * length;
    tokens.resize(static_cast<std::size_t>(rows));
    targets.resize(static_cast<std::size_t>(rows));
    for (std::size_t i = first; i < end; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i - first) * length;
      copy_window(text, windows[i], tokens.data() + at, targets.data() + at);
    }
    total += model.loss({tokens, targets, length}) * static_cast<double>(rows);
    characters += rows;
    first = end;
  }
  return total / static_cast<double>(characters);
}

double evaluate_whole(Model<float>& model, std::span<const Token> text, Index batch_size) {
  const std::vector<Window> windows =
      evaluation_windows(static_cast<Index>(text.size()), model.config().context);
  return evaluate(model, text, windows, batch_size);
}

}  // namespace normscope
