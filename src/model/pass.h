// What one pass of the model is given.
#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/types.h"

namespace normscope {

// B sequences of T tokens, flattened. Spans must outlive the backward.
struct Pass {
  std::span<const std::int32_t> tokens;   // B*T
  std::span<const std::int32_t> targets;  // what should follow each token, where the loss is wanted
  Index context = 0;                      // T of this pass, at most the config's
  bool training = false;                  // dropout on
  RandomStream dropout_stream{0, ""};     // of (seed, step)
  Index first_sequence = 0;               // sequences of this step in earlier micro-batches
  bool eval_mode = false;                 // batch norm by its running statistics
};

}  // namespace normscope
