// The decoder transformer: a config's forward pass on a tape, its sites tapped.
#pragma once

#include <span>
#include <vector>

#include "model/apply_norm.h"
#include "model/config.h"
#include "model/parameters.h"

namespace normscope {

// Keys and values of the positions decoded so far, for every block: (positions, C) each.
template <class Real>
struct KeyValueCache {
  KeyValueCache(const ModelConfig& config);
  Index length = 0;  // positions held, at most T
  std::vector<std::vector<Real>> keys, values;
};

// One forward pass.
template <class Real>
struct Pass {
  std::span<const std::int32_t> tokens;  // (B, T) flattened; they must outlive the backward
  Index context = 0;                     // T of this pass, at most the config's
  bool training = false;                 // dropout on
  RandomStream dropout_stream{0, ""};    // of (seed, step)
  Index first_sequence = 0;              // sequences of this step in earlier micro-batches
  bool by_running_statistics = false;    // batch norm in evaluation
  KeyValueCache<Real>* cache = nullptr;  // decoding: one sequence, tokens follow the cached ones; no backward
};

template <class Real>
class Transformer {
 public:
  Transformer(const ModelConfig& config, Index vocab_size, GemmProvider gemm_provider);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  Index vocab_size() const { return vocab_size_; }

  // (N, V). `gradients` null: no gradients of parameters are wanted (or the tape does not record).
  Var<Real> logits(Tape<Real>& tape, ParameterBlock<Real>& parameters, ParameterBlock<Real>* gradients,
                   const Pass<Real>& pass) const;

 private:
  struct Run;  // what one forward pass carries from part to part

  Var<Real> embed(Run& run) const;
  Var<Real> block(Run& run, std::size_t index, Var<Real> x) const;
  Var<Real> attention(Run& run, std::size_t index, Var<Real> x) const;
  Var<Real> feed_forward(Run& run, std::size_t index, Var<Real> x) const;

  ModelConfig config_;
  Index vocab_size_;
  GemmProvider gemm_provider_;
  ParameterLayout layout_;
  std::vector<const Placement*> placements_;
  std::vector<Real> sinusoids_;        // sinusoidal: (T, C)
  std::vector<Real> cosines_, sines_;  // rope: (T, D/2)
};

}  // namespace normscope
