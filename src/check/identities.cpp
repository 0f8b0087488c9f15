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

std::string block_name(std::size_t index, const char* tensor) { return text("blocks.", index, '.', tensor); }

// The indices of the elements of an (N, C) matrix that are normalised together, one list a group.
std::vector<std::vector<Index>> norm_groups(const ModelConfig& config, Index rows, Index context) {
  const Index C = config.d_model, width = C / (config.norm == groupnorm ? config.norm_groups : 1);
  const Index span = config.norm == batchnorm ? rows : context;
  std::vector<std::vector<Index>> groups;
  if (norm_row(config.norm).leaks) {
    for (Index first = 0; first < rows; first += span) {
      for (Index c = 0; c < C; ++c) {
        std::vector<Index>& group = groups.emplace_back();
        for (Index row = first; row < first + span; ++row) group.push_back(row * C + c);
      }
    }
  } else {
    for (Index first = 0; first < rows * C; first += width) {
      std::vector<Index>& group = groups.emplace_back();
      for (Index i = first; i < first + width; ++i) group.push_back(i);
    }
  }
  return groups;
}

}  // namespace

// y = N(x) does not change when x grows by a constant (where N subtracts the mean) or by a factor:
// sum dx = 0 and <dx, x - mean> = 0 over whatever is normalised together; RMS norm: <dx, x> = 0.
void prove_norm_gradient(const Subject& subject) {
  const ModelConfig config = without_eps(subject.config.model);
  if (!scale_invariant(config.norm)) {
    return subject.does_not_apply(text("norm ", name_of(config.norm), " divides by no statistic of x"));
  }
  const bool centred = config.norm != rmsnorm;
  const Index C = config.d_model, context = 8, rows = 2 * context;
  const auto count = static_cast<std::size_t>(rows * C);
  const auto draw = [&](const char* purpose, std::size_t n, double mean, double spread) {
    const RandomStream stream(1, purpose);
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = mean + spread * stream.normal(i);
    return values;
  };
  std::vector<double> x = draw("x", count, 0.3, 1.2), dx(count), dy = draw("cotangent", count, 0, 1);
  std::vector<double> gain = draw("gain", static_cast<std::size_t>(C), 1, 0.3);
  std::vector<double> bias = draw("bias", static_cast<std::size_t>(C), 0, 0.3);

  Tape<double> tape;
  tape.reset();
  NormVars<double> vars;
  if (config.norm_affine) {
    vars.weight = Tape<double>::constant(gain.data(), 1, C);
    if (config.norm_bias) vars.bias = Tape<double>::constant(bias.data(), 1, C);
  } else {
    std::fill(gain.begin(), gain.end(), 1.0);
  }
  const Var<double> y =
      apply_norm(tape, config, vars, {context, false}, tape.parameter(x.data(), dx.data(), rows, C));
  tape.backward_from(y, dy.data());

  Worst worst;
  for (const std::vector<Index>& group : norm_groups(config, rows, context)) {
    const double n = static_cast<double>(group.size());
    double mean = 0, square = 0, sum = 0, product = 0, cotangent = 0;
    for (const Index i : group) mean += centred ? x[static_cast<std::size_t>(i)] / n : 0;
    for (const Index i : group) {
      const auto at = static_cast<std::size_t>(i);
      const double g = gain[at % static_cast<std::size_t>(C)] * dy[at];
      square += (x[at] - mean) * (x[at] - mean);
      sum += dx[at];
      product += dx[at] * (x[at] - mean);
      cotangent += g * g;
    }
    // dx is about |cotangent| / sigma; both sums are compared with what they would be without cancellation.
    const double size = std::sqrt(cotangent) / std::sqrt(square / n);
    if (centred) worst.add(std::abs(sum) / (std::sqrt(n) * size), "sum dx");
    worst.add(std::abs(product) / (std::sqrt(square) * size), centred ? "<dx, x - mean>" : "<dx, x>");
  }
  subject.report({text("gradient of ", name_of(config.norm), "'s input: ",
                       centred ? "sum dx = 0, <dx, x - mean> = 0" : "<dx, x> = 0", " (norm_eps 0)"),
                  worst.error, identity_limit, worst.place});
}

// Where a norm follows the branch, N(c F) = N(F): a matrix W that the branch is linear in has <W, dW> = 0.
void prove_scale_invariant_branches(const Subject& subject) {
  ModelConfig config = without_eps(subject.config.model);
  const std::vector<const Placement*> rows = placements_of(config);
  const bool any = std::any_of(rows.begin(), rows.end(), [](const Placement* r) { return r->norm_branch; });
  if (!any || !scale_invariant(config.norm)) {
    return subject.does_not_apply("no block normalises what its branch returns by its scale");
  }
  const bool had_bias = config.bias || config.ffn_bias;
  config.bias = config.ffn_bias = false;
  Trial model(subject, config);
  const TrialBatch batch = affordable_batch(subject);
  model.loss_and_gradients(batch.view());
  // ReLU is homogeneous, SwiGLU linear in its ungated half; the others are neither.
  const bool through_ffn = config.activation == Activation::relu || config.activation == Activation::swiglu;
  Worst worst;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i]->norm_branch) continue;
    const BlockParameters& p = model.layout().blocks[i];
    worst.add(inner(model, p.ffn_out.weight).cosine(), block_name(i, "ffn.out"));
    worst.add(inner(model, p.attn_out.weight).cosine(), block_name(i, "attn.out"));
    const Index third = model.layout()[p.qkv.weight].size / 3;
    worst.add(inner(model, p.qkv.weight, 2 * third, third).cosine(), block_name(i, "attn.qkv, v"));
    if (through_ffn) worst.add(inner(model, p.ffn_in.weight).cosine(), block_name(i, "ffn.in"));
  }
  subject.report({text("a norm after the branch: <W, dW> = 0 for ffn.out, attn.out, v",
                       through_ffn ? ", ffn.in" : "", " (norm_eps 0", had_bias ? ", no biases)" : ")"),
                  worst.error, identity_limit, worst.place});
}

// With qk_norm the length of a query or key plays no part: <W_Q, dW_Q> = <W_K, dW_K> = 0, head by head.
void prove_scale_invariant_queries(const Subject& subject) {
  ModelConfig config = without_eps(subject.config.model);
  if (!config.qk_norm) return subject.does_not_apply("qk_norm is false");
  const bool had_bias = config.bias;
  config.bias = false;
  Trial model(subject, config);
  const TrialBatch batch = affordable_batch(subject);
  model.loss_and_gradients(batch.view());
  const Index C = config.d_model, a_head = C / config.n_head * C;
  Worst worst;
  for (std::size_t i = 0; i < model.layout().blocks.size(); ++i) {
    const int qkv = model.layout().blocks[i].qkv.weight;
    for (Index head = 0; head < 2 * config.n_head; ++head) {  // the queries' heads, then the keys'
      const char* what = head < config.n_head ? "queries, head " : "keys, head ";
      worst.add(inner(model, qkv, head * a_head, a_head).cosine(),
                text(block_name(i, what), head % config.n_head + 1));
    }
  }
  subject.report({text("qk_norm: <W_Q, dW_Q> = <W_K, dW_K> = 0 in every head (norm_eps 0",
                       had_bias ? ", no biases)" : ")"),
                  worst.error, identity_limit, worst.place});
}

// Pre-norm reads the stream through norms alone. Scaling everything that writes the stream changes nothing:
// <E, dE> + <P, dP> + sum over blocks (<attn.out, d> + <ffn.out, d>) = 0.
void prove_scale_invariant_stream(const Subject& subject) {
  ModelConfig config = without_eps(subject.config.model);
  using enum PlacementKind;
  if (!scale_invariant(config.norm) || !config.final_norm || !all_blocks(config, {pre, pre_scaled}) ||
      config.position == Position::sinusoidal) {
    return subject.does_not_apply("the stream is not read through norms alone, or has a constant in it");
  }
  const std::string variant =
      text(config.tie_embeddings ? ", untied" : "", config.bias || config.ffn_bias ? ", no biases" : "");
  config.tie_embeddings = config.bias = config.ffn_bias = false;
  Trial model(subject, config);
  const TrialBatch batch = affordable_batch(subject);
  model.loss_and_gradients(batch.view());
  Slice sum{0, 0};
  const auto add = [&](int parameter) {
    if (parameter == no_parameter) return;
    const Slice slice = inner(model, parameter);
    sum.product += slice.product;
    sum.norms += slice.norms;
  };
  add(model.layout().token_embedding);
  add(model.layout().position_embedding);
  for (const BlockParameters& p : model.layout().blocks) {
    add(p.attn_out.weight);
    add(p.ffn_out.weight);
  }
  subject.report(
      {text("the stream's scale does not matter: sum of <W, dW> over all that write it = 0 (norm_eps 0",
            variant, ")"),
       sum.cosine(), identity_limit, ""});
}

// With every a = 0 the blocks are the identity: x_L = x_0, branches get no gradient, the stream's gradient is
// the same at every layer. To the bit.
void prove_rezero_start(const Subject& subject) {
  const ModelConfig config = without_dropout(subject.config.model);
  if (!all_blocks(config, {PlacementKind::rezero}))
    return subject.does_not_apply("not every block is rezero");
  Trial model(subject, config);
  for (const BlockParameters& p : model.layout().blocks) {
    for (const int a : {p.attn_scale, p.ffn_scale}) *model.parameters.at(model.layout()[a]) = 0;
  }
  const TrialBatch batch = affordable_batch(subject);
  SiteCopies<double> sites;
  model.loss_and_gradients(batch.view(), 1, {}, &sites);
  const int last = static_cast<int>(config.n_layer);
  Worst worst;
  worst.add(relative_distance(sites.value({last, Site::stream}).data, sites.value({0, Site::stream}).data),
            "x_L - x_0");
  const std::vector<double>& gradient = sites.gradient({last, Site::stream}).data;
  for (int layer = 0; layer < last; ++layer) {
    worst.add(relative_distance(sites.gradient({layer, Site::stream}).data, gradient),
              text("gradient of stream ", layer));
  }
  for (const Parameter& p : model.layout().list()) {
    if (p.layer == 0 || p.layer > last || p.name.ends_with("_scale")) continue;
    worst.add(l2_norm(p.size, model.gradients.at(p)), "gradient of " + p.name);
  }
  subject.report({"rezero at a = 0: blocks are the identity, branches get no gradient (to the bit)",
                  worst.error, 0, worst.place});
}

// Where all characters of a sequence are one and positions are none, every weight of attention mixes equal
// values: queries and keys cannot matter.
void prove_equal_characters(const Subject& subject) {
  ModelConfig config = without_dropout(subject.config.model);
  if (config.norm == instancenorm) {
    return subject.does_not_apply("instancenorm makes nothing of a sequence whose tokens are equal");
  }
  const std::string variant = config.position == Position::none ? "" : " (position none)";
  config.position = Position::none;
  Trial model(subject, config);
  // Several characters: over one or two batch norm would make nothing of them either.
  const auto context = static_cast<std::size_t>(std::min<Index>(config.context, 16));
  TrialBatch batch(subject, 8, static_cast<Index>(context));
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.tokens[i] = static_cast<Token>(static_cast<Index>(i / context) % subject.corpus.vocab.size());
  }
  model.loss_and_gradients(batch.view());
  double largest = 0;
  for (const Parameter& p : model.layout().list()) {
    if (p.trainable) largest = std::max(largest, l2_norm(p.size, model.gradients.at(p)));
  }
  Worst worst;
  for (std::size_t i = 0; i < model.layout().blocks.size(); ++i) {
    const Parameter& qkv = model.layout()[model.layout().blocks[i].qkv.weight];
    const double* g = model.gradients.at(qkv);
    const Index third = qkv.size / 3;
    // Beside v's. A norm over few different tokens may let little back to v either.
    const double scale = l2_norm(third, g + 2 * third) + 1e-3 * largest;
    worst.add(l2_norm(2 * third, g) / scale, block_name(i, "attn.qkv, q and k"));
  }
  subject.report({"one character repeated: the gradients of W_Q and W_K are 0" + variant, worst.error,
                  identity_limit, worst.place});
}

}  // namespace normscope
