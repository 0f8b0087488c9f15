#include "train/estimates.h"

#include <iomanip>

#include "core/error.h"
#include "core/machine.h"
#include "core/parallel.h"
#include "kernels/simd.h"
#include "model/placement.h"

namespace normscope {

double training_flops_per_token(const ModelConfig& config, const ParameterLayout& layout) {
  const double attention = 6.0 * static_cast<double>(config.n_layer) * static_cast<double>(config.d_model) *
                           static_cast<double>(config.context + 1);
  return 6.0 * static_cast<double>(layout.matmul_param_count()) + attention;
}

double expected_step_seconds(const ModelConfig& config, const ParameterLayout& layout, Index tokens) {
  const std::string_view isa = instruction_set().name_of_floats;
  const double gflops_per_thread = isa == "avx512" ? 60 : isa == "avx2" ? 30 : 8;
  const double arithmetic = training_flops_per_token(config, layout) * static_cast<double>(tokens) /
                            (gflops_per_thread * 1e9 * static_cast<double>(thread_count()));
  return arithmetic + 1e-4 * static_cast<double>(config.n_layer);  // loops and logs, which bound small models
}

namespace {

// Weights, gradients and two moments; values and gradients of one micro-batch of `batch_size` sequences.
double training_bytes(const RunConfig& run, const ParameterLayout& layout, Index vocab_size, Index batch_size) {
  const ModelConfig& config = run.model;
  const double C = static_cast<double>(config.d_model), F = static_cast<double>(config.d_ff),
               L = static_cast<double>(config.n_layer), V = static_cast<double>(vocab_size);
  const double rows = static_cast<double>(batch_size) * static_cast<double>(config.context);
  const double weights = 4 * static_cast<double>(layout.padded_size());  // and gradients, two moments
  // Values that the backward needs: the norms, queries, keys and values, sums and outputs of two sublayers,
  // and copies of queries, keys and values that rope and their norms make; the FFN's hidden values and
  // slopes. Dropout, a factor of the branch and an inner norm make one more of what they read.
  const double copies = 3 * (config.position == Position::rope) + 3 * (config.qk_norm || config.qkv_norm) +
                        2 * (config.dropout > 0);
  double values = L * ((12 + copies) * C + (config.activation == Activation::swiglu ? 3 : 2) * F);
  for (const BlockPlacement& block : placements_of(config)) {
    for (const Placement* placement : {block.attn, block.ffn}) {
      const BranchScale scale = branch_scale_of(config, *placement);
      if (scale.learned != LearnedScale::none || scale.start != 1 || run.train.branch_warmup_steps > 0) values += C;
    }
    values += C * has_inner_norm(config, *block.attn) + F * has_inner_norm(config, *block.ffn);
  }
  const double gradients = 10 * C + 2 * F;  // alive in one block at a time; 2 V: logits and their gradient
  return static_cast<double>(sizeof(float)) * (weights + rows * (values + gradients + 2 * V));
}

}  // namespace

void require_memory(const RunConfig& run, Index vocab_size, Index batch_size, Index copies) {
  const ModelConfig& config = run.model;
  const ParameterLayout layout(config, vocab_size);
  const double needed = static_cast<double>(copies) * training_bytes(run, layout, vocab_size, batch_size),
               available = available_memory_bytes();
  if (needed <= available) return;
  const auto gib = [](double bytes) {
    return text(std::fixed, std::setprecision(1), bytes / 0x1p30, " GiB");
  };
  refuse("memory", "this config needs about ", gib(needed), " (", layout.count(), " parameters, batch_size ",
         batch_size, ", context ", config.context, "); this machine has ", gib(available),
         " free; lower model.d_model, model.n_layer, model.context or train.batch_size");
}

}  // namespace normscope
