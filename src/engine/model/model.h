// A transformer with its weights, gradients and tape.
#pragma once

#include <span>
#include <vector>

#include "model/parameters.h"
#include "model/transformer.h"

namespace normscope {

template <class Real>
class Model {
 public:
  Model(const ModelConfig& config, Index vocab_size, GemmMode mode)
      : transformer(config, vocab_size, mode), parameters(layout()), gradients(layout()), running(layout()) {}

  const ModelConfig& config() const { return transformer.config(); }
  const ParameterLayout& layout() const { return transformer.layout(); }

  // The batch's mean loss (nats). Adds cotangent * d(loss) to `gradients`, sets running.batch. `listener`, if
  // any, receives every site; `logits`, if any, a copy of the logits: (B*T, V).
  double loss_and_gradients(Pass pass, Real cotangent = 1, TapListener<Real>* listener = nullptr,
                            std::vector<Real>* logits = nullptr);

  // The batch's mean loss in eval mode, no gradients.
  double loss(Pass pass, TapListener<Real>* listener = nullptr);

  // Logits (N, V) of tokens that follow those in the cache, or of one sequence without a cache; valid until
  // the next pass. Error: more tokens than fit in the cache.
  std::span<const Real> forward(std::span<const std::int32_t> tokens, KeyValueCache<Real>* cache = nullptr);

  const Transformer<Real> transformer;
  ParameterBuffer<Real> parameters;
  ParameterBuffer<Real> gradients;
  RunningStatistics<Real> running;
  double branch_progress = Pass().branch_progress;  // of every pass
  Tape<Real> tape;
};

// --- the arithmetic and the memory of a training step, from the config alone ---

// Floating-point operations of forward and backward per token: 6 per parameter in a GEMM, and 6 L C (T+1) for
// the unmasked half of attention (2 products forward, 4 backward, 2 operations each, (T+1)/2 keys).
double training_flops_per_token(const ModelConfig& config, const ParameterLayout& layout);

// Estimated seconds of a training step on `tokens` tokens with the threads in use: operations over a typical
// rate of the instruction set.
double expected_step_seconds(const ModelConfig& config, const ParameterLayout& layout, Index tokens);

// Usage Error, before anything is allocated, if this machine or container lacks the memory. `copies`:
// the models of this process at a time; a model in double counts as two.
void require_memory(const ModelConfig& config, Index vocab_size, Index batch_size, Index copies = 1);

}  // namespace normscope
