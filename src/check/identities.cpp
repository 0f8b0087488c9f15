// Exact identities of the gradients: a norm does not see the scale (or the mean) of what it reads, so certain
// sums of gradients vanish. They hold for any weights, at eps = 0 to rounding.
#include <algorithm>

#include "check/trial.h"
#include "config/names.h"

namespace normscope {
namespace {

using enum NormKind;

bool all_blocks(const ModelConfig& config, std::initializer_list<PlacementKind> kinds) {
  const std::vector<const Placement*> rows = placements_of(config);
  return std::all_of(rows.begin(), rows.end(), [&](const Placement* row) {
    return std::find(kinds.begin(), kinds.end(), row->kind) != kinds.end();
  });
}

// Whether N(c x) = N(x) for every c > 0, at eps 0.
bool scale_invariant(NormKind norm) { return norm != dyt && norm != none; }

// Elements [begin, begin + count) of a parameter W. Neighbours in a list that share a place share one law:
// the sum of their <W, dW> is 0.
struct Part {
  std::string place;
  int parameter;
  Index begin, count;
};

// The finding that scaling W changes nothing, without eps and with nothing that is added to what W makes.
Finding scale_does_not_matter(const Subject& subject, const char* law,
                              const std::function<std::vector<Part>(const ParameterLayout&)>& parts_of) {
  const ModelConfig& own = subject.config.model;
  ModelConfig config = own;
  config.norm_eps = 0;
  config.bias = config.ffn_bias = config.tie_embeddings = false;
  Trial<double> model(subject, config);
  const TrialBatch batch = affordable_batch(subject);
  const std::vector<Part> parts = parts_of(model.layout());
  const std::string changes = text(" (norm_eps 0", own.bias || own.ffn_bias ? ", no biases" : "",
                                   own.tie_embeddings ? ", untied)" : ")");
  return vanishes(law + changes, model.tape, [&] {
    model.pass(batch.view());
    std::vector<Residue> all;
    for (const Part& part : parts) {
      if (all.empty() || all.back().place != part.place) all.push_back({part.place, 0, 0});
      const Parameter& p = model.layout()[part.parameter];
      const double *w = model.parameters.at(p) + part.begin, *g = model.gradients.at(p) + part.begin;
      for (Index i = 0; i < part.count; ++i) all.back().add(w[i] * g[i]);
    }
    return all;
  });
}

}  // namespace

// y = N(x) does not change when x grows by a constant (where N subtracts the mean) or by a factor:
// sum dx = 0 and <dx, x - mean> = 0 over whatever is normalised together; RMS norm: <dx, x> = 0.
Outcome norm_gradient(const Subject& subject) {
  ModelConfig config = subject.config.model;
  config.norm_eps = 0;
  if (!scale_invariant(config.norm))
    return text("norm ", name_of(config.norm), " divides by no statistic of x");
  const bool centred = config.norm != rmsnorm;
  const Index C = config.d_model, context = 8, rows = 2 * context;
  const auto draw = [](const char* purpose, Index n, double mean, double spread) {
    const RandomStream stream(1, purpose);
    std::vector<double> values;
    for (Index i = 0; i < n; ++i)
      values.push_back(mean + spread * stream.normal(static_cast<std::uint64_t>(i)));
    return values;
  };
  std::vector<double> x = draw("x", rows * C, 0.3, 1.2), dx(x.size()), dy = draw("cotangent", rows * C, 0, 1),
                      gain = draw("gain", C, 1, 0.3);
  NormVars<double> vars;
  if (config.norm_affine) vars.weight = Tape<double>::constant(gain.data(), 1, C);
  Tape<double> tape;
  const char* law = centred ? "'s input: sum dx = 0, <dx, x - mean> = 0" : "'s input: <dx, x> = 0";
  return vanishes(text("gradient of ", name_of(config.norm), law, " (norm_eps 0)"), tape, [&] {
    std::fill(dx.begin(), dx.end(), 0.0);
    tape.reset();
    const Var<double> in = tape.parameter(x.data(), dx.data(), rows, C);
    tape.backward_from(apply_norm(tape, config, vars, {context, false}, in), dy.data());
    const auto groups = static_cast<std::size_t>(norm_group(config, context, rows - 1, C - 1) + 1);
    const auto group = [&](std::size_t i) {
      const Index at = static_cast<Index>(i);
      return static_cast<std::size_t>(norm_group(config, context, at / C, at % C));
    };
    std::vector<double> mean(groups);
    const double count = static_cast<double>(x.size() / groups);
    for (std::size_t i = 0; i < x.size() && centred; ++i) mean[group(i)] += x[i] / count;
    std::vector<Residue> sums(groups, {"sum dx", 0, 0}), products(groups, {"<dx, x - mean>", 0, 0});
    for (std::size_t i = 0; i < x.size(); ++i) {
      sums[group(i)].add(dx[i]);
      products[group(i)].add(dx[i] * (x[i] - mean[group(i)]));
    }
    if (centred) products.insert(products.end(), sums.begin(), sums.end());
    return products;
  });
}

// Where a norm follows the branch, N(c F) = N(F): a matrix W that the branch is linear in has <W, dW> = 0.
Outcome branch_scale(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  const std::vector<const Placement*> rows = placements_of(config);
  const bool any = std::any_of(rows.begin(), rows.end(), [](const Placement* r) { return r->norm_branch; });
  if (!any || !scale_invariant(config.norm))
    return "no block normalises what its branch returns by its scale";
  // ReLU is homogeneous, SwiGLU linear in its ungated half; the others are neither.
  const bool through_ffn = config.activation == Activation::relu || config.activation == Activation::swiglu;
  const char* law = through_ffn ? "a norm after the branch: <W, dW> = 0 for ffn.out, attn.out, v, ffn.in"
                                : "a norm after the branch: <W, dW> = 0 for ffn.out, attn.out, v";
  return scale_does_not_matter(subject, law, [&](const ParameterLayout& layout) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]->norm_branch) continue;
      const BlockParameters& p = layout.blocks[i];
      const Index third = layout[p.qkv.weight].size / 3;
      for (const int weight :
           {p.ffn_out.weight, p.attn_out.weight, through_ffn ? p.ffn_in.weight : no_parameter}) {
        if (weight != no_parameter) parts.push_back({layout[weight].name, weight, 0, layout[weight].size});
      }
      parts.push_back({layout[p.qkv.weight].name + ", v", p.qkv.weight, 2 * third, third});
    }
    return parts;
  });
}

// With qk_norm the length of a query or key plays no part: <W_Q, dW_Q> = <W_K, dW_K> = 0, head by head.
Outcome query_scale(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  if (!config.qk_norm) return "qk_norm is false";
  const char* law = "qk_norm: <W_Q, dW_Q> = <W_K, dW_K> = 0 in every head";
  return scale_does_not_matter(subject, law, [&](const ParameterLayout& layout) {
    const Index C = config.d_model, H = config.n_head, a_head = C / H * C;
    std::vector<Part> parts;
    for (const BlockParameters& p : layout.blocks) {
      for (Index head = 0; head < 2 * H; ++head) {  // the queries' heads, then the keys'
        const std::string what = text(head < H ? ", queries, head " : ", keys, head ", head % H + 1);
        parts.push_back({layout[p.qkv.weight].name + what, p.qkv.weight, head * a_head, a_head});
      }
    }
    return parts;
  });
}

// Pre-norm reads the stream through norms alone. Scaling everything that writes the stream changes nothing:
// <E, dE> + <P, dP> + sum over blocks (<attn.out, d> + <ffn.out, d>) = 0.
Outcome stream_scale(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  using enum PlacementKind;
  if (!scale_invariant(config.norm) || !config.final_norm || !all_blocks(config, {pre, pre_scaled}) ||
      config.position == Position::sinusoidal) {
    return "the stream is not read through norms alone, or has a constant in it";
  }
  const char* law = "the stream's scale does not matter: sum of <W, dW> over all that write it = 0";
  return scale_does_not_matter(subject, law, [](const ParameterLayout& layout) {
    std::vector<int> writers{layout.token_embedding};
    if (layout.position_embedding != no_parameter) writers.push_back(layout.position_embedding);
    for (const BlockParameters& p : layout.blocks) {
      writers.insert(writers.end(), {p.attn_out.weight, p.ffn_out.weight});
    }
    std::vector<Part> parts;
    for (const int writer : writers) parts.push_back({"all", writer, 0, layout[writer].size});
    return parts;
  });
}

// With every a = 0 the blocks are the identity: x_L = x_0, branches get no gradient, the stream's gradient is
// the same at every layer. To the bit.
Outcome rezero_start(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  if (!all_blocks(config, {PlacementKind::rezero})) return "not every block is rezero";
  Trial<double> model(subject, config);
  for (const BlockParameters& p : model.layout().blocks) {
    for (const int a : {p.attn_scale, p.ffn_scale}) *model.parameters.at(model.layout()[a]) = 0;
  }
  const std::vector<Tensor> pass = tensors_of(model, affordable_batch(subject).view());
  const int last = static_cast<int>(config.n_layer);
  Worst worst;
  const auto equal = [&](const char* what, int layer, int other) {
    const auto &x = tensor_named(pass, text(what, layer, ".stream")).data,
               &y = tensor_named(pass, text(what, other, ".stream")).data;
    worst.add(text(what, layer, ".stream"), l2_distance(std::ssize(x), x.data(), y.data()), 0);
  };
  equal("act.", last, 0);
  for (int layer = 0; layer < last; ++layer) equal("act_grad.", layer, last);
  for (const Parameter& p : model.layout().list()) {
    if (p.layer == 0 || p.layer > last || p.name.ends_with("_scale")) continue;
    worst.add("gradient of " + p.name, l2_norm(p.size, model.gradients.at(p)), 0);
  }
  return worst.finding("rezero at a = 0: blocks are the identity, branches get no gradient (to the bit)");
}

// Where all characters of a sequence are one and positions are none, every weight of attention mixes equal
// values: queries and keys cannot matter.
Outcome equal_characters(const Subject& subject) {
  ModelConfig config = subject.config.model;
  if (config.norm == instancenorm) return "instancenorm makes nothing of tokens that are equal";
  config.position = Position::none;
  Trial<double> model(subject, config);
  // Several characters: over one or two batch norm would make nothing of them either.
  const Index context = std::min<Index>(config.context, 4);
  TrialBatch batch(subject, 8, context);
  for (Index i = 0; i < std::ssize(batch.tokens); ++i) {
    batch.tokens[static_cast<std::size_t>(i)] = static_cast<Token>(i / context % subject.corpus.vocab.size());
  }
  const char* law = "one character repeated: the gradients of W_Q and W_K are 0";
  const char* variant = subject.config.model.position == Position::none ? "" : " (position none)";
  return vanishes(text(law, variant), model.tape, [&] {
    model.pass(batch.view());
    std::vector<Residue> all;
    for (const BlockParameters& p : model.layout().blocks) {
      const Parameter& qkv = model.layout()[p.qkv.weight];
      const double* g = model.gradients.at(qkv);
      const Index third = qkv.size / 3;
      all.push_back(
          {qkv.name + ", q and k", l2_norm(2 * third, g), l2_norm(third, g + 2 * third)});  // beside v's
    }
    return all;
  });
}

}  // namespace normscope
