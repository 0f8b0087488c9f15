#include "data/batches.h"

#include <algorithm>

#include "core/error.h"

namespace normscope {

namespace {

void copy_window(std::span<const Token> text, Window window, Token* tokens, Token* targets) {
  require(window.begin >= 0 && window.length >= 0 && window.begin + window.length < std::ssize(text), "batch",
          "window ", window.begin, " + ", window.length, " is not in ", text.size(), " characters");
  const Token* from = text.data() + window.begin;
  std::copy_n(from, window.length, tokens);
  std::copy_n(from + 1, window.length, targets);
}

}  // namespace

std::vector<std::span<const Window>> window_groups(std::span<const Window> windows, Index max_windows) {
  std::vector<std::span<const Window>> groups;
  for (auto left = windows; !left.empty(); left = left.subspan(groups.back().size())) {
    const Index limit = std::min(max_windows, std::ssize(left));
    Index rows = 1;
    while (rows < limit && left[rows].length == left[0].length) ++rows;
    groups.push_back(left.first(rows));
  }
  return groups;
}

WindowBatch::WindowBatch(std::span<const Token> text, std::span<const Window> windows)
    : tokens(windows.size() * windows[0].length), targets(tokens.size()), context(windows[0].length) {
  Index at = 0;
  for (const Window& window : windows) {
    copy_window(text, window, tokens.data() + at, targets.data() + at);
    at += context;
  }
}

BatchSampler::BatchSampler(std::span<const Token> text, Index context, std::uint64_t seed)
    : text_(text), context_(context), stream_(seed, "batches") {
  require(context >= 1 && std::ssize(text) > context, "batch", text.size(), " characters; expected at least ",
          context + 1);
}

Index BatchSampler::begin(Index step, Index sequence) const {
  return stream_.at(step).below(sequence, std::ssize(text_) - context_);
}

void BatchSampler::fill(Index step, Index first, Index count, Token* tokens, Token* targets) const {
  for (Index j = 0; j < count; ++j)
    copy_window(text_, {begin(step, first + j), context_}, tokens + j * context_, targets + j * context_);
}

std::vector<Window> evaluation_windows(Index characters, Index context, Index count) {
  require(context >= 1, "evaluation", "context ", context);
  const Index whole = (characters - 1) / context, chosen = std::min(whole, count);
  std::vector<Window> windows;
  for (Index i = 0; i < chosen; ++i) windows.push_back({i * whole / chosen * context, context});
  if (chosen > 0) return windows;
  windows.reserve(whole + 1);
  for (Index begin = 0; begin + 1 < characters; begin += context)
    windows.push_back({begin, std::min(context, characters - 1 - begin)});
  return windows;
}

}  // namespace normscope
