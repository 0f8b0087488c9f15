#include "model/parameters.h"

#include <algorithm>

#include "core/error.h"

namespace normscope {
namespace {

constexpr Index alignment = 16;  // elements: tensors start multiples of 64 bytes apart

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config, Index vocab_size) {
  const Index C = config.d_model, F = config.d_ff, D = C / config.n_head;
  const std::vector<BlockPlacement> placements = placements_of(config);
  const int last = static_cast<int>(config.n_layer) + 1;

  token_embedding = add("embed.token.weight", {vocab_size, C}, Role::embedding, 0);
  if (config.position == Position::learned) {
    position_embedding = add("embed.position.weight", {config.context, C}, Role::embedding, 0);
  }
  if (has_embed_norm(config)) embed_norm = add_norm(config, "embed_norm", 0, C);

  for (int layer = 1; layer < last; ++layer) {
    const std::string block = "blocks." + std::to_string(layer - 1) + ".";
    const auto& [attn, ffn] = placements[layer - 1];
    const double attn_factor = attn->init_factor.of(config.n_layer);
    const double ffn_factor = ffn->init_factor.of(config.n_layer);
    BlockParameters& p = blocks.emplace_back();

    add_norms(config, *attn, block + "attn", layer, p.attn);
    p.qkv = add_linear(block + "attn.qkv", 3 * C, C, Role::qkv, config.bias, layer, attn_factor);
    if (config.qk_norm || config.qkv_norm) {
      p.q_norm = add(block + "attn.q_norm.weight", {D}, Role::norm, layer, 1);
      p.k_norm = add(block + "attn.k_norm.weight", {D}, Role::norm, layer, 1);
    }
    if (config.qkv_norm) p.v_norm = add(block + "attn.v_norm.weight", {D}, Role::norm, layer, 1);
    if (has_inner_norm(config, *attn))
      p.attn.norm_inner = add_norm(config, block + "attn.inner_norm", layer, C);
    p.attn.out = add_linear(block + "attn.out", C, C, Role::branch_output, config.bias, layer, attn_factor);
    p.attn.scale = add_scale(config, *attn, block + "attn_scale", layer);

    add_norms(config, *ffn, block + "ffn", layer, p.ffn);
    p.ffn_in = add_linear(block + "ffn.in", F, C, Role::matrix, config.ffn_bias, layer, ffn_factor);
    if (config.activation == Activation::swiglu) {
      p.ffn_gate = add_linear(block + "ffn.gate", F, C, Role::matrix, config.ffn_bias, layer, ffn_factor);
    }
    if (has_inner_norm(config, *ffn)) p.ffn.norm_inner = add_norm(config, block + "ffn.inner_norm", layer, F);
    p.ffn.out = add_linear(block + "ffn.out", C, F, Role::branch_output, config.ffn_bias, layer, ffn_factor);
    p.ffn.scale = add_scale(config, *ffn, block + "ffn_scale", layer);
  }

  if (config.final_norm) final_norm = add_norm(config, "final_norm", last, C);
  head = config.tie_embeddings ? token_embedding : add("head.weight", {vocab_size, C}, Role::head, last);
}

int ParameterLayout::add(std::string name, std::vector<Index> shape, Role role, int layer, double start) {
  Index size = 1;
  for (const Index extent : shape) size *= extent;
  list_.push_back({std::move(name), std::move(shape), role, layer, padded_size_, size, start});
  padded_size_ += (size + alignment - 1) / alignment * alignment;
  return static_cast<int>(list_.size()) - 1;
}

int ParameterLayout::add_buffer(std::string name, Index size, int layer, double start) {
  buffers_.push_back({std::move(name), {size}, Role::norm, layer, buffer_size(), size, start});
  return static_cast<int>(buffers_.size()) - 1;
}

Index ParameterLayout::buffer_size() const {
  return buffers_.empty() ? 0 : buffers_.back().offset + buffers_.back().size;
}

int ParameterLayout::add_scale(const ModelConfig& config, const Placement& placement, const std::string& name,
                               int layer) {
  const auto [learned, start] = branch_scale_of(config, placement);
  if (learned == LearnedScale::none) return no_parameter;
  const Index size = learned == LearnedScale::vector ? config.d_model : 1;
  return add(name, {size}, Role::branch_scale, layer, start);
}

NormParameters ParameterLayout::add_norm(const ModelConfig& config, const std::string& name, int layer,
                                         Index width) {
  const NormRow& norm = norm_row(config.norm);
  const auto add_if = [&](bool present, const char* part, Index size, double start) {
    return present ? add(name + part, {size}, Role::norm, layer, start) : no_parameter;
  };
  const auto add_running = [&](const char* part, double start) {
    return norm.has_running ? add_buffer(name + part, width, layer, start) : no_parameter;
  };
  const bool has_bias = norm.has_bias && config.norm_affine && config.norm_bias;
  return {.present = true,
          .weight = add_if(norm.has_gain && config.norm_affine, ".weight", width, 1),
          .bias = add_if(has_bias, ".bias", width, 0),
          .alpha = add_if(norm.has_alpha, ".alpha", 1, config.norm_alpha),
          .shift = add_if(norm.has_shift, ".shift", 1, 0),
          .running_mean = add_running(".running_mean", 0),
          .running_var = add_running(".running_var", 1)};
}

// The first norm of a sublayer is <sublayer>_norm wherever it sits, the second is <sublayer>_post_norm.
void ParameterLayout::add_norms(const ModelConfig& config, const Placement& placement,
                                const std::string& sublayer, int layer, SublayerParameters& p) {
  const char* name = "_norm";
  for (const auto& [present, norm] : {std::pair{placement.norm_in, &p.norm_in},
                                      {placement.norm_branch, &p.norm_branch},
                                      {placement.norm_out, &p.norm_out}}) {
    if (!present) continue;
    *norm = add_norm(config, sublayer + name, layer, config.d_model);
    name = "_post_norm";
  }
}

LinearParameters ParameterLayout::add_linear(const std::string& name, Index out, Index in, Role role,
                                             bool bias, int layer, double init_factor) {
  LinearParameters linear;
  linear.weight = add(name + ".weight", {out, in}, role, layer);
  list_.back().init_factor = init_factor;
  if (bias) linear.bias = add(name + ".bias", {out}, Role::bias, layer);
  return linear;
}

int ParameterLayout::find(std::string_view name) const {
  const auto found = std::ranges::find(list_, name, &Parameter::name);
  return found == list_.end() ? no_parameter : static_cast<int>(found - list_.begin());
}

Index ParameterLayout::count() const {
  Index total = 0;
  for (const Parameter& p : list_) total += p.size;
  return total;
}

Index ParameterLayout::matmul_param_count() const {
  Index total = (*this)[head].size;
  for (const Parameter& p : list_) {
    if (p.role == Role::qkv || p.role == Role::matrix || p.role == Role::branch_output) total += p.size;
  }
  return total;
}

template <class Real>
RunningStatistics<Real>::RunningStatistics(const ParameterLayout& layout)
    : values(layout.buffer_size()), batch(values.size()) {
  for (const Parameter& p : layout.buffers())
    std::fill_n(values.data() + p.offset, p.size, static_cast<Real>(p.start));
}

template <class Real>
void RunningStatistics<Real>::move(std::span<const Real> batches) {
  require(values.empty() ? batches.empty() : batches.size() % values.size() == 0, "running statistics",
          batches.size(), " numbers of batches for ", values.size(), " buffers");
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Real& value = values[i % values.size()];
    value += static_cast<Real>(running_momentum) * (batches[i] - value);
  }
}

template struct RunningStatistics<float>;
template struct RunningStatistics<double>;

}  // namespace normscope
