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
    BlockParameters& p = blocks.emplace_back();

    add_norms(config, *attn, block + "attn", layer, p.attn);
    p.qkv = add_linear(block + "attn.qkv", 3 * C, C, Role::qkv, config.bias, layer);
    if (config.qk_norm || config.qkv_norm) {
      p.q_norm = add(block + "attn.q_norm.weight", {D}, Role::norm_gain, layer);
      p.k_norm = add(block + "attn.k_norm.weight", {D}, Role::norm_gain, layer);
    }
    if (config.qkv_norm) p.v_norm = add(block + "attn.v_norm.weight", {D}, Role::norm_gain, layer);
    if (has_inner_norm(config, *attn))
      p.attn.norm_inner = add_norm(config, block + "attn.inner_norm", layer, C);
    p.attn.out = add_linear(block + "attn.out", C, C, Role::branch_output, config.bias, layer);
    p.attn.scale = add_scale(config, *attn, block + "attn_scale", layer);

    add_norms(config, *ffn, block + "ffn", layer, p.ffn);
    p.ffn_in = add_linear(block + "ffn.in", F, C, Role::matrix, config.ffn_bias, layer);
    if (config.activation == Activation::swiglu) {
      p.ffn_gate = add_linear(block + "ffn.gate", F, C, Role::matrix, config.ffn_bias, layer);
    }
    if (has_inner_norm(config, *ffn)) p.ffn.norm_inner = add_norm(config, block + "ffn.inner_norm", layer, F);
    p.ffn.out = add_linear(block + "ffn.out", C, F, Role::branch_output, config.ffn_bias, layer);
    p.ffn.scale = add_scale(config, *ffn, block + "ffn_scale", layer);
  }

  if (config.final_norm) final_norm = add_norm(config, "final_norm", last, C);
  head = config.tie_embeddings ? token_embedding : add("head.weight", {vocab_size, C}, Role::head, last);
  set_init_factors(placements);
}

void ParameterLayout::set_init_factors(const std::vector<BlockPlacement>& placements) {
  const auto set = [&](int index, const Placement& placement) {
    if (index != no_parameter) list_[index].init_factor = placement.init_factor.of(std::ssize(blocks));
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockParameters& p = blocks[i];
    for (const int index : {p.qkv.weight, p.attn.out.weight}) set(index, *placements[i].attn);
    for (const int index : {p.ffn_in.weight, p.ffn_gate.weight, p.ffn.out.weight})
      set(index, *placements[i].ffn);
  }
}

int ParameterLayout::add(std::string name, std::vector<Index> shape, Role role, int layer) {
  Index size = 1;
  for (const Index extent : shape) size *= extent;
  list_.push_back({std::move(name), std::move(shape), role, layer, padded_size_, size});
  padded_size_ += (size + alignment - 1) / alignment * alignment;
  return static_cast<int>(list_.size()) - 1;
}

int ParameterLayout::add_buffer(std::string name, Index size, Role role, int layer) {
  buffers_.push_back({std::move(name), {size}, role, layer, buffer_size(), size});
  return static_cast<int>(buffers_.size()) - 1;
}

Index ParameterLayout::buffer_size() const {
  return buffers_.empty() ? 0 : buffers_.back().offset + buffers_.back().size;
}

int ParameterLayout::add_scale(const ModelConfig& config, const Placement& placement, const std::string& name,
                               int layer) {
  const auto [learned, start] = branch_scale_of(config, placement);
  if (learned == LearnedScale::none) return no_parameter;
  const int index =
      add(name, {learned == LearnedScale::vector ? config.d_model : 1}, Role::branch_scale, layer);
  list_.back().start = start;
  return index;
}

NormParameters ParameterLayout::add_norm(const ModelConfig& config, const std::string& name, int layer,
                                         Index width) {
  const NormRow& norm = norm_row(config.norm);
  const auto add_if = [&](bool present, const char* part, Index size, Role role) {
    return present ? add(name + part, {size}, role, layer) : no_parameter;
  };
  const auto add_running = [&](const char* part, Role role) {
    return norm.has_running ? add_buffer(name + part, width, role, layer) : no_parameter;
  };
  const bool has_bias = norm.has_bias && config.norm_affine && config.norm_bias;
  return {.present = true,
          .weight = add_if(norm.has_gain && config.norm_affine, ".weight", width, Role::norm_gain),
          .bias = add_if(has_bias, ".bias", width, Role::norm_bias),
          .alpha = add_if(norm.has_alpha, ".alpha", 1, Role::norm_alpha),
          .shift = add_if(norm.has_shift, ".shift", 1, Role::norm_shift),
          .running_mean = add_running(".running_mean", Role::running_mean),
          .running_var = add_running(".running_var", Role::running_var)};
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
                                             bool bias, int layer) {
  LinearParameters linear;
  linear.weight = add(name + ".weight", {out, in}, role, layer);
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
    std::fill_n(values.data() + p.offset, p.size, static_cast<Real>(first_value(p.role)));
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
