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

}  // namespace normscope
