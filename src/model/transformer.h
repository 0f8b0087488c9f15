// The decoder transformer: the forward pass of a config on a tape, with taps at its sites.
#pragma once

#include <span>
#include <vector>

#include "model/apply_norm.h"
#include "model/config.h"
#include "model/parameters.h"
#include "model/running_statistics.h"

namespace normscope {

// Keys and values of the positions decoded so far, for every block: (positions, C) each.
template <class Real>
struct KeyValueCache {
  KeyValueCache(const ModelConfig& config);
  Index length = 0;  // positions held, at most T
  std::vector<std::vector<Real>> keys, values;
};

template <class Real>
class Transformer {
 public:
  Transformer(const ModelConfig& config, Index vocab_size, GemmProvider gemm_provider);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  Index vocab_size() const { return vocab_size_; }

  // (N, V). `gradients`: null for none. `cache`: the tokens of one sequence follow the cached ones; no
  // backward.
  Var<Real> logits(Tape<Real>& tape, ParameterBlock<Real>& parameters, ParameterBlock<Real>* gradients,
                   RunningStatistics<Real>& running, const Pass& pass,
                   KeyValueCache<Real>* cache = nullptr) const;

 private:
  struct Run;  // one forward pass

  ModelConfig config_;
  Index vocab_size_;
  GemmProvider gemm_provider_;
  ParameterLayout layout_;
  std::vector<BlockRows> placements_;
  std::vector<Real> sinusoids_;        // sinusoidal: (T, C)
  std::vector<Real> cosines_, sines_;  // rope: (T, D/2)
};

}  // namespace normscope
