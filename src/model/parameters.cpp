#include "model/parameters.h"

#include <algorithm>

#include "core/error.h"

namespace normscope {
namespace {

constexpr Index alignment = 16;  // elements: every tensor starts on a cache line

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config, Index vocab_size) {
  const Index C = config.d_model, F = config.d_ff, D = C / config.n_head;
  const std::vector<const Placement*> placements = placements_of(config);
  const int last = static_cast<int>(config.n_layer) + 1;

  token_embedding = add("embed.token.weight", {vocab_size, C}, 0);
  if (config.position == Position::learned) {
    position_embedding = add("embed.position.weight", {config.context, C}, 0);
  }
  if (placements[0]->embed_norm) embed_norm = add_norm(config, "embed_norm", 0);

  for (int layer = 1; layer < last; ++layer) {
    const std::string block = "blocks." + std::to_string(layer - 1) + ".";
    const Placement& placement = *placements[static_cast<std::size_t>(layer - 1)];
    // A sublayer with one norm calls it <sublayer>_norm wherever it sits; a second one is
    // <sublayer>_post_norm.
    const int norms = placement.norm_in + placement.norm_branch + placement.norm_out;
    BlockParameters& p = blocks.emplace_back();

    if (norms > 0) p.attn_norm = add_norm(config, block + "attn_norm", layer);
    if (norms > 1) p.attn_post_norm = add_norm(config, block + "attn_post_norm", layer);
    p.qkv = add_linear(block + "attn.qkv", 3 * C, C, config.bias, layer);
    if (config.qk_norm) {
      p.q_norm = add(block + "attn.q_norm.weight", {D}, layer);
      p.k_norm = add(block + "attn.k_norm.weight", {D}, layer);
    }
    p.attn_out = add_linear(block + "attn.out", C, C, config.bias, layer);
    if (placement.learned_scale) p.attn_scale = add(block + "attn_scale", {1}, layer);

    if (norms > 0) p.ffn_norm = add_norm(config, block + "ffn_norm", layer);
    if (norms > 1) p.ffn_post_norm = add_norm(config, block + "ffn_post_norm", layer);
    p.ffn_in = add_linear(block + "ffn.in", F, C, config.ffn_bias, layer);
    if (config.activation == Activation::swiglu) {
      p.ffn_gate = add_linear(block + "ffn.gate", F, C, config.ffn_bias, layer);
    }
    p.ffn_out = add_linear(block + "ffn.out", C, F, config.ffn_bias, layer);
    if (placement.learned_scale) p.ffn_scale = add(block + "ffn_scale", {1}, layer);
  }

  if (config.final_norm) final_norm = add_norm(config, "final_norm", last);
  head = config.tie_embeddings ? token_embedding : add("head.weight", {vocab_size, C}, last);
}

int ParameterLayout::add(std::string name, std::vector<Index> shape, int layer, bool trainable) {
  Index size = 1;
  for (const Index extent : shape) size *= extent;
  list_.push_back({std::move(name), std::move(shape), layer, block_size_, size, trainable});
  block_size_ += (size + alignment - 1) / alignment * alignment;
  return static_cast<int>(list_.size()) - 1;
}

NormParameters ParameterLayout::add_norm(const ModelConfig& config, const std::string& name, int layer) {
  const NormRow& row = norm_row(config.norm);
  NormParameters norm;
  if (row.has_gain && config.norm_affine) norm.weight = add(name + ".weight", {config.d_model}, layer);
  if (row.has_bias && config.norm_affine && config.norm_bias)
    norm.bias = add(name + ".bias", {config.d_model}, layer);
  if (row.has_alpha) norm.alpha = add(name + ".alpha", {1}, layer);
  if (row.has_running) {
    norm.running_mean = add(name + ".running_mean", {config.d_model}, layer, /*trainable=*/false);
    norm.running_var = add(name + ".running_var", {config.d_model}, layer, /*trainable=*/false);
  }
  return norm;
}

LinearParameters ParameterLayout::add_linear(const std::string& name, Index out, Index in, bool bias,
                                             int layer) {
  LinearParameters linear;
  linear.weight = add(name + ".weight", {out, in}, layer);
  if (bias) linear.bias = add(name + ".bias", {out}, layer);
  return linear;
}

int ParameterLayout::find(std::string_view name) const {
  const auto found =
      std::find_if(list_.begin(), list_.end(), [&](const Parameter& p) { return p.name == name; });
  return found == list_.end() ? no_parameter : static_cast<int>(found - list_.begin());
}

Index ParameterLayout::count() const {
  Index total = 0;
  for (const Parameter& p : list_) total += p.trainable ? p.size : 0;
  return total;
}

Index ParameterLayout::matmul_param_count() const {
  Index total = (*this)[head].size;
  for (const Parameter& p : list_) {
    if (p.is_matrix() && p.layer > 0 && p.name != "head.weight") total += p.size;
  }
  return total;
}

}  // namespace normscope
