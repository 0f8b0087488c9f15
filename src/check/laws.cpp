// The laws that compare: gradients in double with the derivatives of the equations, and the engine that
// trains (float, with its SIMD, fused attention and GEMM) with itself on another text and with the model in
// double.
#include <algorithm>
#include <cstring>

#include "check/check.h"
#include "check/rounded.h"
#include "config/fields.h"

namespace normscope {
namespace {

// An equal mix of a random direction and that of the n numbers at g.
Numbers direction(Index n, const double* g, const std::string& name) {
  const RandomStream stream(1, "direction of " + name);
  Numbers d(n);
  for (Index i = 0; i < n; ++i) d[i] = stream.normal(i);
  const double own = l2_norm(n, g), sign = dot(n, d.data(), g) < 0 ? -1 : 1;  // the halves must not cancel
  const double random = sign * l2_norm(n, d.data());
  for (Index i = 0; i < n; ++i) d[i] = d[i] / random + (own > 0 ? g[i] / own : 0);
  return d;
}

// The size of a batch, as a law's line says it.
std::string size_of(const Pass& batch) {
  return text(" (", std::ssize(batch.tokens) / batch.context, " sequences of ", batch.context, ")");
}

// The logits (N, V) of a pass in training, or in evaluation.
std::vector<float> logits_of(Model<float>& model, Pass pass, bool training) {
  model.tape.reset(false);
  pass.eval_mode = !training;
  pass.branch_progress = model.branch_progress;
  const Var<float> logits =
      model.transformer.logits(model.tape, model.parameters, nullptr, model.running, pass);
  return {logits.data, logits.data + logits.size()};
}

// Counts the rows of logits that differ although no character at or before them was changed.
Result leak(Model<float>& model, const WindowBatch& batch, bool training, const std::string& why) {
  const Index context = batch.context, rows = std::ssize(batch.tokens), V = model.transformer.vocab_size();
  const std::vector<float> before = logits_of(model, view(batch), training);
  Index leaks = 0;
  // Five characters or a few more, a quarter of the context apart: rows before and after them lie in different
  // tiles.
  for (Index changed = std::min<Index>(1, context - 1); changed < context;
       changed += std::max<Index>(1, (context - 1) / 4)) {
    WindowBatch other = batch;
    other.tokens[changed] = static_cast<Token>((other.tokens[changed] + 1) % V);
    const std::vector<float> after = logits_of(model, view(other), training);
    for (Index row = 0; row < rows; ++row) {
      if (row >= changed && row < context) continue;  // this sequence, at or after the change
      leaks += std::memcmp(&before[row * V], &after[row * V], V * sizeof(float)) != 0;
    }
  }
  return {text("changing character t changes no logit before t, nor of another sequence, in ",
               training ? "training" : "evaluation", " (to the bit)"),
          static_cast<double>(leaks), 0, text(leaks, " rows of logits changed", why)};
}

// The sizes to which errors of these tensors are relative. For gradients they are at least a share of the
// largest one, since smaller gradients may be pure rounding.
std::map<std::string, double> scales_of(const Tensors& pass) {
  constexpr double share_of_largest = 0.03;
  const auto kind = [](const std::string& name) { return name.substr(0, name.find('.')); };
  std::map<std::string, double> scales, largest;
  for (const auto& [name, x] : pass) {
    scales[name] = l2_norm(std::ssize(x), x.data());
    largest[kind(name)] = std::max(largest[kind(name)], scales[name]);
  }
  for (auto& [name, scale] : scales) {
    if (kind(name).ends_with("grad")) scale = std::max(scale, share_of_largest * largest[kind(name)]);
  }
  return scales;
}

// The outcome, unless a result misses its limit and rounding explains that. The pass in double, whose numbers
// are `expected`, is rounded eight times as the engine does: what rounding does varies from draw to draw, as
// a near-tie in one softmax may flip, so the worst counts. If it moves a tensor beyond the limit, or by a
// sixth of the error, the config is chaotic: the law does not apply.
Outcome unless_chaotic(const Result& result, Model<double>& exact, const Pass& batch, const Tensors& expected,
                       double rounding, bool rounds_every_op) {
  Worst rounded;
  for (std::uint64_t draw = 0; draw < 8 && !result.holds(); ++draw) {
    const Tensors moved = tensors_of(exact, batch, Rounded(rounding, draw, rounds_every_op));
    for (const auto& [name, scale] : scales_of(expected))
      rounded.add(name, l2_distance(moved.at(name), expected.at(name)), scale);
  }
  constexpr double margin = 6;  // the engine rounds inside of ops too
  const Result chaos = rounded.result("", result.limit);
  const bool to_nan = std::isnan(chaos.error) && !std::isnan(result.error);
  if (result.holds() || !(to_nan || chaos.error > result.limit || result.error <= margin * chaos.error))
    return {{result}};
  std::string how = text(" by ", chaos.error, " of its size");
  if (to_nan) how = " to NaN";
  if (std::isinf(chaos.error)) how = ", which is 0 without it";
  return {.does_not_apply = text("chaotic: rounding alone moves ", chaos.note, how)};
}

}  // namespace

Outcome compare_with_derivatives(Model<double>& model, const Pass& batch,
                                 const ParameterBuffer<double>& gradients) {
  ParameterBuffer<double> directions = gradients;
  for (const Parameter& p : model.layout().list())
    std::ranges::copy(direction(p.size, gradients.at(p), p.name), directions.at(p));
  const std::vector<double> slopes = slopes_of_loss(model, batch, directions);
  const Tensors own = tensors_of(model, batch);  // `gradients` may be those of another backward
  const std::map<std::string, double> scales = scales_of(own);
  Worst worst;
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    const Parameter& p = model.layout()[static_cast<int>(i)];
    const double along = dot(p.size, gradients.at(p), directions.at(p));
    constexpr double least_size = 1e-150;  // its square is in the range of double
    worst.add(p.name, std::abs(slopes[i] - along), std::max(least_size, scales.at("grad." + p.name)));
  }
  const Result result = worst.result(
      text("gradients of ", slopes.size(), " tensors equal the exact derivatives of the equations",
           is_detached(model.config()) ? ", with norms' statistics held" : "", size_of(batch)),
      1e-9);
  return unless_chaotic(result, model, batch, own, 0x1p-52, true);
}

// With norm_detach, gradients are those of a loss in which the statistics of norms are constants.
Outcome derivatives(const CheckInput& given) {
  TestModel<double> model(given, given.config.model);
  const WindowBatch batch = small_batch(given, 8);  // short, because each tensor's derivative takes a pass
  model.loss_and_gradients(view(batch));
  const ParameterBuffer<double> gradients = model.gradients;
  return unless_nan(given, compare_with_derivatives(model, view(batch), gradients));
}

Outcome causality(const CheckInput& given) {
  const NormRow& norm = norm_row(given.config.model.norm);
  const WindowBatch batch = small_batch(given, 96);
  TestModel<float> model(given, given.config.model);
  const char* over = norm.over == NormOver::batch ? "all tokens of the batch" : "the whole sequence";
  const std::string why =
      text("; ", norm.name, "'s statistics run over ", over, ", later characters included");
  Outcome outcome{{leak(model, batch, true, norm.non_causal() ? why : "")}};
  if (norm.has_running) outcome.results.push_back(leak(model, batch, false, ""));
  return outcome;
}

// True if a norm is over two numbers, or a query's over one. All that it leaves of them is their sign: its
// gradient is 0 but for eps, and float32 rounds the mean of two nearly equal numbers by more than they
// differ.
bool norms_signs(const ModelConfig& config, Index context) {
  const NormOver over = norm_row(config.norm).over;
  const bool has_inner = std::ranges::any_of(
      named_placements(config), [&](const Placement* row) { return has_inner_norm(config, *row); });
  const Index features = has_inner ? std::min(config.d_model, config.d_ff) : config.d_model;
  return (over == NormOver::features && features <= 2) ||
         (over == NormOver::groups && features / config.norm_groups <= 2) ||
         (over == NormOver::sequence && context <= 2) || (config.qk_norm && config.d_model == config.n_head);
}

// The engine that trains against the same model in double.
Outcome precision_of(const CheckInput& given, const WindowBatch& batch) {
  const ModelConfig& config = given.config.model;
  TestModel<float> engine(given, config, config.init);
  TestModel<double> exact(given, config, config.init);
  std::ranges::copy(engine.parameters.all(), exact.parameters.all().begin());
  const Tensors result_of_engine = tensors_of(engine, view(batch)), expected = tensors_of(exact, view(batch));
  const bool is_bf16 = given.config.train.precision == Precision::bf16;
  Worst worst;
  for (const auto& [name, scale] : scales_of(expected)) {
    constexpr double min_scale = 1e-30, max_scale = 1e18;  // beyond, squares may leave the range of a float
    if (scale > 0 && (scale < min_scale || scale > max_scale))
      return {.does_not_apply = text(name, ", of size ", scale, ", leaves the range of float32")};
    worst.add(name, l2_distance(result_of_engine.at(name), expected.at(name)), scale);
  }
  const Result result =
      worst.result(text("the engine that trains (", name_of(given.config.train.precision),
                        ") equals the one in double: loss, sites, gradients", size_of(view(batch))),
                   is_bf16 ? 5e-2 : 1e-4);
  // Norms' statistics amplify rounding inside of an op; without them it is enough to round the sites.
  const Outcome outcome = unless_chaotic(result, exact, view(batch), expected, is_bf16 ? 0x1p-8 : 0x1p-22,
                                         norm_row(config.norm).has_statistics());
  if (!result.holds() && !outcome.results.empty() && norms_signs(config, batch.context))
    return {.does_not_apply = text(result.note, " rests on signs: a norm here is over two numbers")};
  return unless_nan(given, outcome);
}

// The batch has sequences as long as the config's and at least 512 characters, so that attention has as many
// blocks of keys as in training, and split-K (gemm/schedule.cpp) its blocks of k; it has fewer where that
// takes more than about a second. In many characters near-ties of softmax, which rounding flips, are
// frequent: where the law does not apply to them, it may apply to few.
Outcome precision(const CheckInput& given) {
  const ModelConfig& config = given.config.model;
  constexpr Index multiply_adds = 6'000'000'000, least = 192, wanted = 512;
  const Index parameters = ParameterLayout(config, given.corpus.vocab.size()).padded_size();
  const Index affordable = multiply_adds / (parameters + config.n_layer * config.d_model * config.context);
  const Index characters = std::clamp(affordable, least, std::max(wanted, 2 * config.context));
  const Outcome outcome = precision_of(given, small_batch(given, characters / 2, characters));
  return outcome.results.empty() ? precision_of(given, small_batch(given, 96)) : outcome;
}

}  // namespace normscope
