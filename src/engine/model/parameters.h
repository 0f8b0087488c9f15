// The parameters of a model: names, shapes, and offsets in one buffer of memory.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/pointwise.h"
#include "model/config.h"

namespace normscope {

// The role of a tensor in the model, which decides how a matrix is drawn and whether it belongs to a norm.
// `branch_output`: attn.out and ffn.out, which write the stream. `qkv`: three matrices in one.
enum class Role { embedding, qkv, matrix, branch_output, head, bias, norm, branch_scale };

// One tensor. Weights are (out, in), and names are those of a PyTorch module's state_dict.
struct Parameter {
  std::string name;
  std::vector<Index> shape;
  Role role;
  int layer;               // 0: embeddings; 1..L: blocks; L+1: final norm and head
  Index offset;            // first element in the buffer
  Index size;              // elements
  double start = 0;        // the initial value of each number that is not drawn
  double init_factor = 1;  // the placement's factor on a matrix's initial values (for qkv, on v's alone)

  bool is_matrix() const { return shape.size() >= 2; }
  bool has_weight_decay() const { return is_matrix(); }  // not gains, biases, scales
  bool is_drawn() const { return is_matrix(); }          // at random, at first; the others start as constants
  Index rows() const { return is_matrix() ? shape[0] : 1; }
  Index cols() const { return shape.back(); }
  bool is_norm() const { return role == Role::norm; }
};

// The indices of the parameters of a norm, a linear layer, a block; `no_parameter` if absent.
constexpr int no_parameter = -1;
struct NormParameters {
  bool present = false;
  int weight = no_parameter, bias = no_parameter, alpha = no_parameter, shift = no_parameter;
  int running_mean = no_parameter, running_var = no_parameter;  // indices into buffers()
};
struct LinearParameters {
  int weight = no_parameter, bias = no_parameter;
};
struct SublayerParameters {
  NormParameters norm_in, norm_branch, norm_out;  // as in Placement
  NormParameters norm_inner;                      // before `out`
  LinearParameters out;                           // the matrix that writes the stream
  int scale = no_parameter;
};
struct BlockParameters {
  SublayerParameters attn, ffn;
  LinearParameters qkv, ffn_in, ffn_gate;
  int q_norm = no_parameter, k_norm = no_parameter, v_norm = no_parameter;
};

// The parameters of a config and a vocabulary, in the order of the model, and the indices of each part.
class ParameterLayout {
 public:
  ParameterLayout(const ModelConfig& config, Index vocab_size);

  const std::vector<Parameter>& list() const { return list_; }
  // Running means and variances of batch norm, in a buffer of their own (RunningStatistics).
  const std::vector<Parameter>& buffers() const { return buffers_; }
  Index buffer_size() const;  // numbers of that block
  const Parameter& operator[](int index) const { return list_[static_cast<std::size_t>(index)]; }
  int find(std::string_view name) const;              // the index, or no_parameter
  Index padded_size() const { return padded_size_; }  // elements of the buffer, padding included
  Index count() const;                                // numbers of the parameters
  Index matmul_param_count() const;                   // elements of the matrices in GEMMs: blocks and head

  int token_embedding, position_embedding = no_parameter, head;  // a tied head is the token embedding
  NormParameters embed_norm, final_norm;
  std::vector<BlockParameters> blocks;

 private:
  int add(std::string name, std::vector<Index> shape, Role role, int layer, double start = 0);
  int add_buffer(std::string name, Index size, int layer, double start);
  NormParameters add_norm(const ModelConfig& config, const std::string& name, int layer, Index width);
  int add_scale(const ModelConfig& config, const Placement& placement, const std::string& name, int layer);
  void add_norms(const ModelConfig& config, const Placement& placement, const std::string& sublayer,
                 int layer, SublayerParameters& parameters);
  LinearParameters add_linear(const std::string& name, Index out, Index in, Role role, bool bias, int layer,
                              double init_factor);

  std::vector<Parameter> list_, buffers_;
  Index padded_size_ = 0;
};

// Values or gradients of all parameters, in one block of memory with the layout's offsets.
template <class Real>
class ParameterBuffer {
 public:
  explicit ParameterBuffer(const ParameterLayout& layout)
      : data_(static_cast<std::size_t>(layout.padded_size())) {}

  Real* at(const Parameter& parameter) { return data_.data() + parameter.offset; }
  const Real* at(const Parameter& parameter) const { return data_.data() + parameter.offset; }
  std::vector<Real>& all() { return data_; }
  const std::vector<Real>& all() const { return data_; }

  void clear() { fill_zero(static_cast<Index>(data_.size()), data_.data()); }

 private:
  std::vector<Real> data_;
};

// Draw every matrix and embedding from (seed, its name) alone: unit normals or uniforms, scaled by the
// config's init. Gains start at 1, biases and shifts at 0, alpha and scales of branches at the values of their
// keys. So configs that differ in norm or placement share their weights, but for factors: those of the placement,
// and init.residual_scaling, whose default is the placement's.
template <class Real>
void initialise(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                ParameterBuffer<Real>& parameters);

constexpr double running_momentum = 0.1;

// Batch norm's running mean and variance, which PyTorch calls buffers. They are no parameters: each step that
// is taken moves them, and evaluation uses them.
template <class Real>
struct RunningStatistics {
  // Means of 0, variances of 1, at the offsets of layout.buffers().
  explicit RunningStatistics(const ParameterLayout& layout);

  // new = 0.9 old + 0.1 batch for each micro-batch of a step, in their order: a whole number of `batch`
  // arrays.
  void move(std::span<const Real> batches);

  std::vector<Real> values;
  std::vector<Real> batch;  // moments of the last training pass, laid out alike; variances are unbiased
};

}  // namespace normscope
