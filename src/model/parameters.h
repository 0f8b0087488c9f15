// The parameters of a model: their names, shapes and places in one block of memory.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/pointwise.h"
#include "model/config.h"

namespace normscope {

// One tensor. Weights are (out, in), as in PyTorch; the names are those of a PyTorch module's state_dict.
struct Parameter {
  std::string name;
  std::vector<Index> shape;
  int layer;              // 0: embeddings; 1..L: blocks; L+1: final norm and head
  Index offset;           // first element in the block
  Index size;             // elements
  bool trainable = true;  // false: running statistics; their "gradient" is the change that the step makes

  bool is_matrix() const { return shape.size() >= 2; }  // decayed; the rest is gains, biases, scales
  Index rows() const { return is_matrix() ? shape[0] : 1; }
  Index cols() const { return shape.back(); }
};

// Where the parameters of a norm, a linear layer, a block are in the list; absent ones are `no_parameter`.
constexpr int no_parameter = -1;
struct NormParameters {
  int weight = no_parameter, bias = no_parameter, alpha = no_parameter;
  int running_mean = no_parameter, running_var = no_parameter;
};
struct LinearParameters {
  int weight = no_parameter, bias = no_parameter;
};
struct BlockParameters {
  NormParameters attn_norm, attn_post_norm, ffn_norm, ffn_post_norm;
  LinearParameters qkv, attn_out, ffn_in, ffn_gate, ffn_out;
  int q_norm = no_parameter, k_norm = no_parameter;
  int attn_scale = no_parameter, ffn_scale = no_parameter;
};

// The list that a config and a vocabulary give, in the order of the model, and each part's place in it.
class ParameterLayout {
 public:
  ParameterLayout(const ModelConfig& config, Index vocab_size);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& operator[](int index) const { return list_[static_cast<std::size_t>(index)]; }
  int find(std::string_view name) const;            // its index, or no_parameter
  Index block_size() const { return block_size_; }  // elements of the block, padding included
  Index count() const;                              // parameters
  Index matmul_param_count() const;  // parameters that a token is multiplied with: matrices, head

  int token_embedding, position_embedding = no_parameter, head;  // a tied head is the token embedding
  NormParameters embed_norm, final_norm;
  std::vector<BlockParameters> blocks;

 private:
  int add(std::string name, std::vector<Index> shape, int layer, bool trainable = true);
  NormParameters add_norm(const ModelConfig& config, const std::string& name, int layer);
  LinearParameters add_linear(const std::string& name, Index out, Index in, bool bias, int layer);

  std::vector<Parameter> list_;
  Index block_size_ = 0;
};

// Values (or gradients, or moments) of every parameter, in one block of memory laid out as the layout says.
template <class Real>
class ParameterBlock {
 public:
  explicit ParameterBlock(const ParameterLayout& layout)
      : data_(static_cast<std::size_t>(layout.block_size())) {}

  Real* at(const Parameter& parameter) { return data_.data() + parameter.offset; }
  const Real* at(const Parameter& parameter) const { return data_.data() + parameter.offset; }
  std::vector<Real>& all() { return data_; }
  const std::vector<Real>& all() const { return data_; }

  void clear() { fill_zero(static_cast<Index>(data_.size()), data_.data()); }

 private:
  std::vector<Real> data_;
};

// Draws every parameter from (seed, its name) alone: unit normals or uniforms, then scaled as the config's
// init says; gains 1, biases 0, ReZero's scales 0. So configs that differ in norm or placement share their
// weights.
template <class Real>
void initialise(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                ParameterBlock<Real>& parameters);

}  // namespace normscope
