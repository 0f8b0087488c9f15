// The decoder transformer: the forward pass of a config on a tape, with taps at its sites.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/gemm/gemm.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ops/batch_norm.h"

namespace normscope {

// The input of one pass: B sequences of T tokens, flattened. Spans must outlive the backward.
struct Pass {
  std::span<const std::int32_t> tokens;   // B*T
  std::span<const std::int32_t> targets;  // B*T: the token that follows each; empty if no loss is computed
  Index context = 0;                      // T of this pass, at most the config's
  bool with_dropout = false;
  RandomStream dropout_stream{0, ""};  // the stream of (seed, step)
  Index first_sequence = 0;            // sequences of this step in earlier micro-batches
  bool eval_mode = false;              // batch norm uses its running statistics
  // Branches of block l are multiplied by min(branch_progress / l, 1) (ProRes, arXiv 2603.05369).
  // branch_progress is s / train.branch_warmup_steps at step s, or infinite if that is 0. Model sets it in
  // each pass; TrainConfig::branch_progress() says to which step's.
  double branch_progress = std::numeric_limits<double>::infinity();
};

// The parameters of one norm on the tape; absent ones are empty.
template <class Real>
struct NormVars {
  Var<Real> weight, bias, alpha, shift;
  FeatureMoments<Real> running = {}, batch = {};  // batch norm's: read in eval mode, written in training
};

// y = N(x), x: (N, C), with the config's norm; `none` returns x itself.
template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const Pass& pass, Var<Real> x);

// Keys and values of the positions decoded so far, for every block: (positions, C) each. Keys are held after
// qk_norm and rope, so that a position is rotated once.
template <class Real>
struct KeyValueCache {
  KeyValueCache(const ModelConfig& config);
  Index length = 0;  // positions held, at most T
  std::vector<std::vector<Real>> keys, values;
};

template <class Real>
class Transformer {
 public:
  Transformer(const ModelConfig& config, Index vocab_size, GemmMode mode);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  Index vocab_size() const { return vocab_size_; }

  // Logits (N, V). `gradients`: null for none. `cache`: the tokens of one sequence follow the cached ones; no
  // backward.
  Var<Real> logits(Tape<Real>& tape, ParameterBuffer<Real>& parameters, ParameterBuffer<Real>* gradients,
                   RunningStatistics<Real>& running, const Pass& pass,
                   KeyValueCache<Real>* cache = nullptr) const;

 private:
  struct Forward;  // one pass: its inputs, and the parts of the model on its tape

  ModelConfig config_;
  Index vocab_size_;
  GemmMode mode_;
  ParameterLayout layout_;
  std::vector<BlockPlacement> placements_;
  std::vector<Real> sinusoids_;        // sinusoidal: (T, C)
  std::vector<Real> cosines_, sines_;  // rope: (T, D/2)
};

}  // namespace normscope
