#include "model/cost.h"

#include <bit>
#include <cstdint>
#include <iomanip>
#include <utility>

#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {

double training_flops_per_token(const ModelConfig& config, const ParameterLayout& layout) {
  const double attention = 6.0 * static_cast<double>(config.n_layer) * static_cast<double>(config.d_model) *
                           static_cast<double>(config.context + 1);
  return 6.0 * static_cast<double>(layout.matmul_param_count()) + attention;
}

double expected_step_seconds(const ModelConfig& config, const ParameterLayout& layout, Index tokens) {
  const std::string_view isa = isa_name();
  const double gflops_per_thread = isa == "avx512" ? 60 : isa == "avx2" ? 30 : 8;
  const double arithmetic = training_flops_per_token(config, layout) * static_cast<double>(tokens) /
                            (gflops_per_thread * 1e9 * static_cast<double>(thread_count()));
  return arithmetic + 1e-4 * static_cast<double>(config.n_layer);  // small models wait for loops and logs
}

double training_bytes(const ModelConfig& config, const ParameterLayout& layout, Index vocab_size,
                      Index batch_size, Index grad_accum) {
  const double C = static_cast<double>(config.d_model), F = static_cast<double>(config.d_ff);
  const double V = static_cast<double>(vocab_size);
  const double rows = static_cast<double>(batch_size) * static_cast<double>(config.context);
  const auto waiting = std::bit_width<std::uint64_t>(grad_accum - 1);  // dist/gradient_sum.h
  const double weights = static_cast<double>((4 + waiting) * layout.block_size());

  const double qkv_copies = 1.0 + (config.qk_norm || config.qkv_norm) + (config.position == Position::rope);
  const double dropouts = config.dropout > 0 ? 2 : 0;
  const double hidden = config.activation == Activation::swiglu ? 3 : 2;
  const bool norms = config.norm != NormKind::none;
  double blocks = 0;
  for (const auto& [attn, ffn] : placements_of(config)) {
    blocks += 6 * C + 3 * C * qkv_copies + dropouts * C + hidden * F;  // attention, both outputs and sums
    for (const auto& [row, inner] : {std::pair(attn, C), std::pair(ffn, F)}) {
      const BranchScale scale = branch_scale_of(config, *row);
      const bool scaled = scale.learned != LearnedScale::none || scale.start != 1;
      blocks += C * (norms * (row->norm_in + row->norm_branch + row->norm_out) + scaled +
                     !row->input_scale.is_one() + row->block_skip);
      if (has_inner_norm(config, *row)) blocks += inner;
    }
  }
  const double gradients = 2 * F + 8 * C;  // alive at one time
  const double activations = rows * (blocks + gradients + 2 * C + 3 * V);
  return static_cast<double>(sizeof(float)) * (weights + activations);
}

void require_memory(const ModelConfig& config, Index vocab_size, Index batch_size, Index grad_accum,
                    Index copies) {
  const ParameterLayout layout(config, vocab_size);
  const double needed = static_cast<double>(copies) *
                        training_bytes(config, layout, vocab_size, batch_size, grad_accum),
               available = available_memory_bytes();
  if (needed <= available) return;
  const auto gib = [](double bytes) {
    return text(std::fixed, std::setprecision(1), bytes / 0x1p30, " GiB");
  };
  refuse("memory", "this config needs about ", gib(needed), " (", layout.count(), " parameters, batch_size ",
         batch_size, ", grad_accum ", grad_accum, ", context ", config.context, "); this machine has ",
         gib(available), " free; lower model.d_model, model.n_layer, model.context or train.batch_size");
}

}  // namespace normscope
