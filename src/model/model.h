// A transformer with its weights, gradients and tape: what is trained, probed, evaluated, sampled.
#pragma once

#include <span>
#include <vector>

#include "model/parameters.h"
#include "model/transformer.h"

namespace normscope {

// A batch of B sequences of T tokens, and what should follow each token. Both flattened, B*T long.
struct TokenBatch {
  std::span<const std::int32_t> tokens, targets;
  Index context = 0;  // T
};

// What of a step a pass needs to know.
struct StepPart {
  bool training = false;               // dropout on
  RandomStream dropout_stream{0, ""};  // of (seed, step)
  Index first_sequence = 0;            // sequences in earlier micro-batches of the step
};

template <class Real>
class Model {
 public:
  Model(const ModelConfig& config, Index vocab_size, GemmProvider gemm_provider)
      : transformer(config, vocab_size, gemm_provider), parameters(layout()), gradients(layout()) {}

  const ModelConfig& config() const { return transformer.config(); }
  const ParameterLayout& layout() const { return transformer.layout(); }

  // The batch's mean loss (nats). Adds cotangent * d(loss) to `gradients`. `listener`, if any, hears every
  // site; `logits`, if any, gets a copy of them: (B*T, V).
  double loss_and_gradients(const TokenBatch& batch, Real cotangent = 1, const StepPart& part = {},
                            TapListener<Real>* listener = nullptr, std::vector<Real>* logits = nullptr);

  // The batch's mean loss, dropout off, no gradients; batch norm by its running statistics.
  double loss(const TokenBatch& batch, TapListener<Real>* listener = nullptr);

  // Logits (N, V) of the tokens that follow those in the cache. They stay valid until the next pass.
  std::span<const Real> decode(std::span<const std::int32_t> tokens, KeyValueCache<Real>& cache);

  // Logits (N, V) of one sequence without a cache.
  std::span<const Real> forward(std::span<const std::int32_t> tokens);

  const Transformer<Real> transformer;
  ParameterBlock<Real> parameters;
  ParameterBlock<Real> gradients;
  Tape<Real> tape;
};

}  // namespace normscope
