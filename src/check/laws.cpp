// The laws that compare: gradients in double with differences of the loss, and the engine that trains (float,
// with its SIMD, fused attention and GEMM) with itself on another text and with the model in double.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "check/check.h"
#include "check/rounded.h"

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
  // Near the start, in the middle, at the end: on both sides of block boundaries.
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

// The error of one parameter's gradient g against central differences of the loss, and the size to which it
// is relative; none if the tensor is skipped. check.h has the rule, at compare_with_differences().
// `loss_noise`, `gradient_noise`: what rounding moves the loss, and <g, d>.
struct Verdict {
  double error, scale;
};
constexpr double difference_limit = 1e-6;
std::optional<Verdict> difference_verdict(const Parameter& p, const double* g, double* w, double loss_noise,
                                          double gradient_noise, const std::function<double()>& loss) {
  constexpr double steps[] = {1e-4, 1e-5, 1e-6, 1e-7, 1e-8};  // relative to the length of W
  constexpr double limit = difference_limit;
  const Numbers d = direction(p.size, g, p.name), start(w, w + p.size);
  const double size = l2_norm(p.size, g), slope = dot(p.size, g, d.data());
  // A tensor of zeros (rezero's scales at the start) still needs a step.
  const double length = std::max(l2_norm(p.size, w), 1e-3 * std::sqrt(static_cast<double>(p.size)));
  const auto loss_at = [&](double h) {
    for (Index i = 0; i < p.size; ++i) w[i] = start[i] + h * d[i];
    return loss();
  };
  double before = NAN;
  std::optional<Verdict> fault, pass;
  const double here = loss_at(0);
  for (const double step : steps) {
    const double h = step * length, up = (loss_at(h) - here) / h, down = (here - loss_at(-h)) / h;
    const double difference = (up + down) / 2, error = std::abs(difference - slope);
    const double noise = loss_noise / h + gradient_noise, scale = size + noise / limit;
    const bool agrees = !(error > limit * scale);  // true if the error is NaN, which fails the law
    if (agrees && (!fault || limit * scale <= 0.1 * fault->error)) {
      pass = {error, scale};
      break;
    }
    if (noise <= 0.1 * error) {  // else rounding may explain much of the error: this step decides nothing
      const bool is_straight = std::abs(up - down) <= 0.1 * error;
      const bool stays = std::abs(difference - before) <= 0.1 * std::min(error, std::abs(difference) + noise);
      fault = is_straight && stays ? std::optional<Verdict>({error, scale}) : std::nullopt;
    }
    before = difference;
  }
  std::ranges::copy(start, w);
  return pass ? pass : fault;
}

}  // namespace

Outcome compare_with_differences(Model<double>& model, const Pass& batch,
                                 const ParameterBuffer<double>& gradients,
                                 const std::function<double()>& loss) {
  // Evaluation uses batch norm's running statistics; its gradient is that of the batch's own.
  const bool in_training = norm_row(model.config().norm).has_running;
  const std::function<double()> own_loss = [&] {
    return in_training ? model.loss_and_gradients(batch) : model.loss(batch);
  };
  Rounded rounding(0x1p-52, 0);
  model.gradients.clear();
  const double value = model.loss_and_gradients(batch);
  const ParameterBuffer<double> own = model.gradients;  // `gradients` may be those of another backward
  model.gradients.clear();
  const double rounded = model.loss_and_gradients(batch, 1, &rounding);
  const ParameterBuffer<double> rounded_gradients = model.gradients;
  const double loss_noise = std::max(1e-14 * std::abs(value), std::abs(rounded - value));
  Worst worst;
  Index tested = 0;
  for (const Parameter& p : model.layout().list()) {
    Numbers moved(own.at(p), own.at(p) + p.size);
    for (Index i = 0; i < p.size; ++i) moved[i] -= rounded_gradients.at(p)[i];
    constexpr double margin = 10;  // one draw of rounding stands for all
    const double gradient_noise = margin * l2_norm(p.size, moved.data());
    // Rounding alone makes this gradient infinite, as in attention whose scores are beyond 1e16: skip it.
    if (!std::isfinite(gradient_noise) && std::isfinite(l2_norm(p.size, own.at(p)))) continue;
    const auto verdict = difference_verdict(p, gradients.at(p), model.parameters.at(p), loss_noise,
                                            gradient_noise, loss ? loss : own_loss);
    if (!verdict) continue;
    worst.add(p.name, verdict->error, verdict->scale);
    ++tested;
  }
  if (tested == 0) return {.does_not_apply = "chaotic: no two differences of the loss agree"};
  return {{worst.result(text("gradients of ", tested, " of ", model.layout().list().size(),
                             " tensors equal central differences (", std::ssize(batch.tokens) / batch.context,
                             " sequences of ", batch.context, ")"),
                        difference_limit)}};
}

// With norm_detach, gradients are those of a loss in which the statistics of norms are constants.
Outcome finite_differences(const CheckInput& given) {
  const bool held = is_detached(given.config.model);
  TestModel<double> model(given, given.config.model);
  const WindowBatch batch = small_batch(given, 8);  // short, so that few inputs of ReLUs lie near 0
  model.loss_and_gradients(view(batch));
  const ParameterBuffer<double> gradients = model.gradients;
  std::function<double()> loss;
  if (held) loss = loss_with_held_statistics(model, view(batch));
  Outcome outcome = compare_with_differences(model, view(batch), gradients, loss);
  for (Result& result : outcome.results) result.law += held ? ", with norms' statistics held" : "";
  return unless_nan(given, outcome);
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
  const std::vector<const Placement*> rows = sublayer_rows(config);
  const bool has_inner =
      std::ranges::any_of(rows, [&](const Placement* row) { return has_inner_norm(config, *row); });
  const Index features = has_inner ? std::min(config.d_model, config.d_ff) : config.d_model;
  return (over == NormOver::features && features <= 2) ||
         (over == NormOver::groups && features / config.norm_groups <= 2) ||
         (over == NormOver::sequence && context <= 2) || (config.qk_norm && config.d_model == config.n_head);
}

// The engine that trains against the same model in double. Where it misses the limit, the double model is
// rounded eight times as float32 (or bf16) would: without norms' statistics, which amplify it, at its sites.
// If that alone moves a tensor beyond the limit, or by a sixth of the engine's error, the config is called
// chaotic and the law does not apply.
Outcome precision(const CheckInput& given) {
  const ModelConfig& config = given.config.model;
  const Index vocab = given.corpus.vocab.size();
  const std::uint64_t seed = given.config.train.seed;
  Model<float> engine(config, vocab, given.config.train.gemm_mode());
  initialise(config, engine.layout(), seed, engine.parameters);
  move_off_constants(engine.layout(), seed, engine.parameters);
  Model<double> exact(config, vocab, GemmProvider::openblas);
  std::ranges::copy(engine.parameters.all(), exact.parameters.all().begin());
  const double progress = given.config.train.branch_progress(checked_step(given.config));
  engine.branch_progress = exact.branch_progress = progress;

  const WindowBatch batch = small_batch(given, 96);
  const Tensors result_of_engine = tensors_of(engine, view(batch)), expected = tensors_of(exact, view(batch));
  const bool is_bf16 = given.config.train.precision == Precision::bf16;
  const double limit = is_bf16 ? 5e-2 : 1e-4, rounding = is_bf16 ? 0x1p-8 : 0x1p-22;
  const std::map<std::string, double> scales = scales_of(expected);
  Worst worst, rounded;
  for (const auto& [name, scale] : scales) {
    constexpr double min_scale = 1e-30, max_scale = 1e18;  // beyond, squares may leave the range of a float
    if (scale > 0 && (scale < min_scale || scale > max_scale))
      return {.does_not_apply = text(name, ", of size ", scale, ", leaves the range of float32")};
    worst.add(name, l2_distance(result_of_engine.at(name), expected.at(name)), scale);
  }
  const Result result = worst.result(text("the engine that trains (", name_of(given.config.train.precision),
                                          ") equals the one in double: loss, sites, gradients"),
                                     limit);
  // The effect of rounding varies from draw to draw: a near-tie in one softmax may flip. The worst of 8
  // counts.
  for (std::uint64_t draw = 0; draw < 8 && !result.holds(); ++draw) {
    const Tensors moved =
        tensors_of(exact, view(batch), Rounded(rounding, draw, norm_row(config.norm).has_statistics()));
    for (const auto& [name, scale] : scales)
      rounded.add(name, l2_distance(moved.at(name), expected.at(name)), scale);
  }
  constexpr double margin = 6;  // the engine rounds between sites too
  const Result chaos = rounded.result("", limit);
  const bool to_nan = std::isnan(chaos.error) && !std::isnan(result.error);
  if (!result.holds() && (to_nan || chaos.error > limit || result.error <= margin * chaos.error)) {
    std::string how = text(" by ", chaos.error, " of its size");
    if (to_nan) how = " to NaN";
    if (std::isinf(chaos.error)) how = ", which is 0 without it";
    return {.does_not_apply = text("chaotic: rounding alone moves ", chaos.note, how)};
  }
  if (!result.holds() && norms_signs(config, batch.context))
    return {.does_not_apply = text(result.note, " rests on signs: a norm here is over two numbers")};
  return unless_nan(given, {{result}});
}

}  // namespace normscope
