// The identities of gradients in double: what a norm makes of the size and of the mean of weights.
#include "check/check.h"
#include "check/rounded.h"
#include "config/fields.h"

namespace normscope {
namespace {

// True if the norms subtract a token's mean from its features.
bool subtracts_mean(const ModelConfig& config) {
  const NormRow& row = norm_row(config.norm);
  return row.centred && row.has_statistics() && !row.non_causal();
}

// The parameters and gradients in which the laws of scale and of means are read: the config almost without
// eps, without biases of matrices, untied.
struct ScaleModel {
  explicit ScaleModel(const CheckInput& given) : model(given, variant(given.config.model, 1e-24)) {
    const WindowBatch batch = small_batch(given, 32);
    model.loss_and_gradients(view(batch));
    for (const Parameter& p : layout.list())
      largest =
          std::max(largest, l2_norm(p.size, model.parameters.at(p)) * l2_norm(p.size, model.gradients.at(p)));
    TestModel<double> other(given, variant(given.config.model, 4e-24));
    for (std::uint64_t draw = 0; draw < 3; ++draw) {
      Rounded rounding(0x1p-52, draw);
      other.gradients.clear();
      other.loss_and_gradients(view(batch), 1, &rounding);
      rounded.push_back(other.gradients);
    }
  }
  static ModelConfig variant(ModelConfig config, double eps) {
    config.norm_eps = eps;  // with 0 a norm of zeros would give NaN
    config.bias = config.ffn_bias = config.tie_embeddings = false;
    if (subtracts_mean(config)) config.norm_bias = false;  // centred_products() has no part of it
    return config;
  }
  // <W, dW> of one of some equal parts of a matrix.
  double product(const ParameterBuffer<double>& gradients, const Parameter& p, Index part = 0,
                 Index parts = 1) {
    const Index n = p.size / parts;
    return dot(n, model.parameters.at(p) + part * n, gradients.at(p) + part * n);
  }
  // The size of a product, a function of the gradients; 0 if rounding and eps alone move it by a tenth of
  // that.
  template <class Product>
  double beyond_rounding(const Product& product_of) {
    const double exact = product_of(model.gradients);
    for (const ParameterBuffer<double>& gradients : rounded)
      if (std::abs(product_of(gradients) - exact) > 0.1 * std::abs(exact)) return 0;
    return std::abs(exact);
  }
  // Adds a product that should be 0.
  void add(Worst& worst, const Parameter& p, Index part = 0, Index parts = 1) {
    const auto of_part = [&](const auto& gradients) { return product(gradients, p, part, parts); };
    worst.add(p.name, beyond_rounding(of_part), largest);
  }

  TestModel<double> model;
  std::vector<ParameterBuffer<double>> rounded;  // the gradients of passes that are rounded, with another eps
  const ModelConfig& config = model.config();
  const ParameterLayout& layout = model.layout();
  const bool has_statistics = norm_row(config.norm).has_statistics() && !is_detached(config);
  double largest = 0;  // |W||dW| of any parameter: a product far below it may be pure rounding
};

// A norm after the branch, N(c F) = N(F): <W, dW> = 0 for the matrices in which F is linear. ReLU is
// homogeneous, SwiGLU linear in its ungated half.
Worst branch_products(ScaleModel& test) {
  Worst worst;
  const ModelConfig& config = test.config;
  using enum Activation;
  const bool through_ffn =
      config.activation == relu || config.activation == relu2 || config.activation == swiglu;
  const std::vector<BlockPlacement> placements = placements_of(config);
  for (const Parameter& p : test.layout.list()) {
    if (!test.has_statistics || p.layer == 0 || p.layer > config.n_layer) continue;
    const bool is_ffn = p.name.find(".ffn.") != p.name.npos;
    const BlockPlacement& block = placements[p.layer - 1];
    if (!(is_ffn ? block.ffn : block.attn)->norm_branch) continue;
    if (p.role == Role::branch_output || (through_ffn && p.name.ends_with("ffn.in.weight")))
      test.add(worst, p);
    if (p.role == Role::qkv && !config.qkv_norm) test.add(worst, p, 2, 3);  // F is linear in the values
  }
  return worst;
}

// qk_norm: <W, dW> = 0 for each head's queries and keys, with qkv_norm for its values too.
Worst head_products(ScaleModel& test) {
  Worst worst;
  Index thirds = 0;  // of the qkv matrix, that are normalised
  if (test.config.qk_norm) thirds = 2;
  if (test.config.qkv_norm) thirds = 3;
  const Index H = test.config.n_head;
  for (const Parameter& p : test.layout.list()) {
    for (Index head = 0; p.role == Role::qkv && head < thirds * H; ++head) test.add(worst, p, head, 3 * H);
  }
  return worst;
}

// Pre-norm reads the stream through norms alone: the sum of <W, dW> over all that write the stream is 0.
Worst stream_product(ScaleModel& test) {
  const ModelConfig& config = test.config;
  bool only_norms_read = test.has_statistics && config.final_norm && !has_embed_norm(config) &&
                         config.position != Position::sinusoidal;
  for (const Placement* row : named_placements(config)) {
    const bool is_pre = row->norm_in && !row->norm_branch && !row->norm_out && row->alpha.is_one();
    only_norms_read = only_norms_read && is_pre;
  }
  for (const Parameter& p : test.layout.list())
    only_norms_read = only_norms_read && p.role != Role::branch_scale;
  const auto sum = [&](const auto& gradients) {
    double total = 0;
    for (const Parameter& p : test.layout.list())
      if (p.role == Role::embedding || p.role == Role::branch_output) total += test.product(gradients, p);
    return total;
  };
  Worst worst;
  if (only_norms_read) worst.add("", test.beyond_rounding(sum), test.largest);
  return worst;
}

// A norm that subtracts a token's mean writes gain x^, where x^ sums to 0. So dW (1/gain) = 0 for each matrix
// W that reads it: a direction of its inputs that no gradient moves (arXiv 2603.27432).
Worst centred_products(ScaleModel& test) {
  Worst worst;
  if (!subtracts_mean(test.config)) return worst;
  const auto add = [&](const NormParameters& norm, int weight) {
    if (!norm.present || weight == no_parameter) return;
    const Parameter& p = test.layout[weight];
    const double* dW = test.model.gradients.at(p);
    Numbers inverse(p.cols(), 1), product;
    if (norm.weight != no_parameter)
      for (Index i = 0; i < p.cols(); ++i)
        inverse[i] /= test.model.parameters.at(test.layout[norm.weight])[i];
    for (Index i = 0; i < p.size; i += p.cols()) product.push_back(dot(p.cols(), dW + i, inverse.data()));
    worst.add(p.name, l2_norm(p.rows(), product.data()),
              l2_norm(p.size, dW) * l2_norm(p.cols(), inverse.data()));
  };
  NormParameters stream = test.layout.embed_norm;  // the norm that wrote it, if any
  const auto add_sublayer = [&](const SublayerParameters& p, std::initializer_list<int> first_weights) {
    for (const int weight : first_weights) add(p.norm_in.present ? p.norm_in : stream, weight);
    add(p.norm_inner, p.out.weight);
    stream = p.norm_out;
  };
  for (const BlockParameters& p : test.layout.blocks) {
    add_sublayer(p.attn, {p.qkv.weight});
    add_sublayer(p.ffn, {p.ffn_in.weight, p.ffn_gate.weight});
  }
  add(test.layout.final_norm.present ? test.layout.final_norm : stream, test.layout.head);
  return worst;
}

}  // namespace

Outcome scales(const CheckInput& given) {
  ScaleModel test(given);
  Outcome outcome{.does_not_apply =
                      "no norm hides a mean, or the scale of every branch, of heads or of the stream"};
  for (const auto& [law, worst] : {
           std::pair("a norm after the branch: <W, dW> = 0 of matrices in which it is linear",
                     branch_products(test)),
           {"qk_norm: <W, dW> = 0 of queries and keys (qkv_norm: values too), head by head",
            head_products(test)},
           {"the stream's scale does not matter: sum of <W, dW> over all that write it = 0",
            stream_product(test)},
           {"a norm that subtracts the mean: dW (1/gain) = 0 of the matrices that read it",
            centred_products(test)},
       })
    if (!worst.empty()) outcome.results.push_back(worst.result(law, identity_limit));
  return unless_nan(given, outcome);
}

}  // namespace normscope
