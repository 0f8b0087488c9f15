// The input of one pass of the model.
#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/types.h"

namespace normscope {

// B sequences of T tokens, flattened. Spans must outlive the backward.
struct Pass {
  std::span<const std::int32_t> tokens;   // B*T
  std::span<const std::int32_t> targets;  // B*T: the token that follows each; empty if no loss is computed
  Index context = 0;                      // T of this pass, at most the config's
  bool training = false;                  // dropout on
  RandomStream dropout_stream{0, ""};     // of (seed, step)
  Index first_sequence = 0;               // sequences of this step in earlier micro-batches
  bool eval_mode = false;                 // batch norm uses its running statistics
};

}  // namespace normscope
