// Exact identities of the gradients: a norm does not see the scale (or the mean) of what it reads, so certain
// sums of gradients vanish. They hold for any weights, at eps = 0 to rounding.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

// Whether the stream after the sublayer is x + a*F.
bool adds_only_the_branch(const Placement* row) {
  return !row->norm_branch && !row->norm_out && row->alpha.is_one();
}

// Elements [begin, begin + count) of a parameter W. For consecutive parts with the same place, the sum of
// their <W, dW> is 0.
struct Part {
  std::string place;
  int parameter;
  Index begin, count;
};

// The law that a scale of W changes nothing, for the config without eps and without biases.
Result scale_does_not_matter(const Context& given, const char* law,
                             const std::function<std::vector<Part>(const ParameterLayout&)>& parts_of) {
  const ModelConfig& own = given.config.model;
  ModelConfig config = own;
  config.norm_eps = 0;
  config.bias = config.ffn_bias = config.tie_embeddings = false;
  TestModel<double> model(given, config);
  const TestBatch batch = small_batch(given);
  const std::vector<Part> parts = parts_of(model.layout());
  const std::string changes = text(" (norm_eps 0", own.bias || own.ffn_bias ? ", no biases" : "",
                                   own.tie_embeddings ? ", untied)" : ")");
  model.pass(batch.view());
  std::vector<Residue> all;
  for (const Part& part : parts) {
    if (all.empty() || all.back().place != part.place) all.push_back({part.place, 0, 0});
    const Parameter& p = model.layout()[part.parameter];
    const double *w = model.parameters.at(p) + part.begin, *g = model.gradients.at(p) + part.begin;
    for (Index i = 0; i < part.count; ++i) all.back().add(w[i] * g[i]);
  }
  double largest = 0;
  for (const Parameter& p : model.layout().list())
    largest =
        std::max(largest, l2_norm(p.size, model.parameters.at(p)) * l2_norm(p.size, model.gradients.at(p)));
  return vanishes(law + changes, all, largest);
}

}  // namespace

// y = N(x) does not change when x grows by a constant (where N subtracts the mean) or by a factor:
// sum dx = 0 and <dx, x - mean> = 0 over whatever is normalised together; RMS norm: <dx, x> = 0.
Outcome norm_gradient(const Context& given) {
  ModelConfig config = given.config.model;
  config.norm_eps = 0;
  if (!norm_row(config.norm).has_statistics())
    return text("norm ", name_of(config.norm), " divides by no statistic of x");
  const bool centred = norm_row(config.norm).centred;
  const Index C = config.d_model, context = 8, rows = 2 * context;
  const auto draw = [](const char* purpose, Index n, double mean, double spread) {
    const RandomStream stream(1, purpose);
    std::vector<double> values;
    for (Index i = 0; i < n; ++i) values.push_back(mean + spread * stream.normal(i));
    return values;
  };
  std::vector<double> x = draw("x", rows * C, 0.3, 1.2), dx(x.size()), dy = draw("cotangent", rows * C, 0, 1),
                      gain = draw("gain", C, 1, 0.3);
  NormVars<double> vars;
  if (config.norm_affine) vars.weight = Tape<double>::constant(gain.data(), 1, C);
  Tape<double> tape;
  const char* law = centred ? "'s input: sum dx = 0, <dx, x - mean> = 0" : "'s input: <dx, x> = 0";
  tape.reset();
  const Var<double> in = tape.parameter(x.data(), dx.data(), rows, C);
  tape.backward_from(apply_norm(tape, config, vars, {.tokens = {}, .targets = {}, .context = context}, in),
                     dy.data());
  const auto group = [&](Index i) { return norm_group(config, context, i / C, i % C, C); };
  const Index n = rows * C, groups = group(n - 1) + 1;
  std::vector<double> mean(groups), square(groups);
  const double count = static_cast<double>(n / groups);
  for (Index i = 0; i < n && centred; ++i) mean[group(i)] += x[i] / count;
  for (Index i = 0; i < n; ++i) square[group(i)] += std::pow(x[i] - mean[group(i)], 2) / count;
  std::vector<Residue> sums(groups, {"sum dx", 0, 0}), products(groups, {"<dx, x - mean>", 0, 0});
  for (Index i = 0; i < n; ++i) {
    const Index g = group(i);
    sums[g].add(dx[i] * std::sqrt(square[g]));
    products[g].add(dx[i] * (x[i] - mean[g]));
  }
  if (centred) products.insert(products.end(), sums.begin(), sums.end());
  // Of two features, which are normalised to 1 and -1, dx is 0.
  return vanishes(text("gradient of ", name_of(config.norm), law, " (norm_eps 0)"), products, 1);
}

// A norm after the branch makes N(c F) = N(F): <W, dW> = 0 for each matrix W in which the branch is linear.
Outcome branch_scale(const Context& given) {
  const ModelConfig& config = given.config.model;
  const std::vector<BlockRows> rows = placements_of(config);
  if (std::ranges::none_of(sublayer_rows(config), &Placement::norm_branch) ||
      !norm_row(config.norm).has_statistics())
    return "no block normalises what its branch returns by its scale";
  // ReLU is homogeneous, SwiGLU linear in its ungated half; the others are neither. A norm before the last
  // matrix hides what is before it.
  const bool through_ffn = config.activation == Activation::relu || config.activation == Activation::swiglu;
  const bool through_v = !config.qkv_norm;
  const std::string law = text("a norm after the branch: <W, dW> = 0 for ffn.out, attn.out",
                               through_v ? ", v" : "", through_ffn ? ", ffn.in" : "");
  return scale_does_not_matter(given, law.c_str(), [&](const ParameterLayout& layout) {
    std::vector<Part> parts;
    const auto add = [&](int weight) {
      parts.push_back({layout[weight].name, weight, 0, layout[weight].size});
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const BlockParameters& p = layout.blocks[i];
      const Index third = layout[p.qkv.weight].size / 3;
      if (rows[i].ffn->norm_branch) add(p.ffn.out.weight);
      if (rows[i].ffn->norm_branch && through_ffn) add(p.ffn_in.weight);
      if (rows[i].attn->norm_branch) add(p.attn.out.weight);
      if (rows[i].attn->norm_branch && through_v)
        parts.push_back({layout[p.qkv.weight].name + ", v", p.qkv.weight, 2 * third, third});
    }
    return parts;
  });
}

// With qk_norm the length of a query or key plays no part: <W_Q, dW_Q> = <W_K, dW_K> = 0, head by head; with
// qkv_norm that of a value too.
Outcome query_scale(const Context& given) {
  const ModelConfig& config = given.config.model;
  if (!config.qk_norm && !config.qkv_norm) return "there is no qk_norm";
  const Index parts_normed = config.qkv_norm ? 3 : 2;
  const char* law = config.qkv_norm ? "qkv_norm: <W_Q, dW_Q> = <W_K, dW_K> = <W_V, dW_V> = 0 in every head"
                                    : "qk_norm: <W_Q, dW_Q> = <W_K, dW_K> = 0 in every head";
  return scale_does_not_matter(given, law, [&](const ParameterLayout& layout) {
    const Index C = config.d_model, H = config.n_head, a_head = C / H * C;
    constexpr const char* names[] = {", queries", ", keys", ", values"};
    std::vector<Part> parts;
    for (const BlockParameters& p : layout.blocks) {
      for (Index head = 0; head < parts_normed * H; ++head) {
        const std::string what = text(names[head / H], ", head ", head % H + 1);
        parts.push_back({layout[p.qkv.weight].name + what, p.qkv.weight, head * a_head, a_head});
      }
    }
    return parts;
  });
}

// Pre-norm reads the stream through norms alone. Scaling everything that writes the stream changes nothing:
// <E, dE> + <P, dP> + sum over blocks (<attn.out, d> + <ffn.out, d>) = 0.
Outcome stream_scale(const Context& given) {
  const ModelConfig& config = given.config.model;
  const auto reads_through_norms = [](const Placement* row) {
    return row->norm_in && adds_only_the_branch(row);
  };
  if (!norm_row(config.norm).has_statistics() || !config.final_norm ||
      std::ranges::count(ParameterLayout(config, 2).list(), Role::branch_scale, &Parameter::role) > 0 ||
      !std::ranges::all_of(sublayer_rows(config), reads_through_norms) ||
      config.position == Position::sinusoidal) {
    return "the stream is not read through norms alone, or has a constant in it";
  }
  const char* law = "the stream's scale does not matter: sum of <W, dW> over all that write it = 0";
  return scale_does_not_matter(given, law, [](const ParameterLayout& layout) {
    std::vector<int> writers{layout.token_embedding};
    if (layout.position_embedding != no_parameter) writers.push_back(layout.position_embedding);
    for (const BlockParameters& p : layout.blocks)
      writers.insert(writers.end(), {p.attn.out.weight, p.ffn.out.weight});
    std::vector<Part> parts;
    for (const int writer : writers) parts.push_back({"all", writer, 0, layout[writer].size});
    return parts;
  });
}

}  // namespace normscope
