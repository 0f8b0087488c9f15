// The sequences of training steps, and the windows in which a text is evaluated.
#pragma once

#include <span>
#include <vector>

#include "core/random.h"
#include "core/types.h"
#include "data/corpus.h"

namespace normscope {

// Characters [begin, begin+length) predict [begin+1, begin+length+1).
struct Window {
  Index begin;
  Index length;
  bool operator==(const Window&) const = default;
};

// Groups of neighbouring windows of equal length, at most `max_windows` each.
std::vector<std::span<const Window>> window_groups(std::span<const Window> windows, Index max_windows);

// The tokens of a group of windows, (B, T), and the token that follows each.
struct WindowBatch {
  WindowBatch(std::span<const Token> text, std::span<const Window> windows);
  std::vector<Token> tokens, targets;
  Index context;
};

// Training sequences as a pure function of (seed, step, sequence): there is no state to save.
class BatchSampler {
 public:
  // `text`, of at least context+1 characters, must outlive the sampler.
  BatchSampler(std::span<const Token> text, Index context, std::uint64_t seed);

  // The begin of sequence j of step s: uniform in [0, n_train-T-1], both ends included.
  Index begin(Index step, Index sequence) const;

  // Sequences [first, first+count) of a step into tokens and targets, (count, T) each. With gradient
  // accumulation micro-batch k begins at k*batch_size, so 2 x 8 and 1 x 16 see the same sequences.
  void fill(Index step, Index first, Index count, Token* tokens, Token* targets) const;

 private:
  std::span<const Token> text_;
  Index context_;
  RandomStream stream_;
};

// Windows at 0, T, 2T, ... and a shorter last one: every character but the first is predicted exactly once.
// If count > 0: at most `count` whole windows, evenly spaced. A text shorter than a window gives one short
// window.
std::vector<Window> evaluation_windows(Index characters, Index context, Index count = 0);

}  // namespace normscope
