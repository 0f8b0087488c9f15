// Two ways to compute the same must give the same numbers: placements that coincide, logits that are 0, float
// and double. Parameters of the same name start equal in both models.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

using enum PlacementKind;

// Relative rounding of the engine. Float: 2^-24 is half of its spacing; four times that, since one number on
// the tape may be a long sum or the result of several steps. bf16: half of its spacing, as all else is float.
constexpr double noise_of_float = 0x1p-22, noise_of_bf16 = 0x1p-9;

// Gradients below this share of the largest one are compared with that: they may be nothing but rounding.
constexpr double share_of_largest = 0.03;

// Beyond these, squares and products may leave the range of a float.
constexpr double min_scale = 1e-30, max_scale = 1e18;

// The config with another placement in every block, and a final norm for every placement.
ModelConfig with_placement(ModelConfig config, PlacementKind placement) {
  config.norm_placement = {placement};
  config.qkv_norm = false;
  config.final_norm = true;
  return config;
}

// Adds the differences of two models in a training pass (batch norm with the batch's statistics), for tensors
// up to a kind. The last kind, the gradients of gains, depends on the size of the gains.
void compare(Model<double>& a, Model<double>& b, const Pass& batch, Tensor::Kind last, bool to_the_bit,
             Worst& worst) {
  std::vector<Tensor> all_a = tensors_of(a, batch), all_b = tensors_of(b, batch);
  if (!to_the_bit) find_rounding(a, batch, noise_of_double, all_a);
  if (!to_the_bit) find_rounding(b, batch, noise_of_double, all_b);
  for (const Tensor& x : all_a) {
    if (x.kind > last) continue;
    const Tensor& y = tensor_named(all_b, x.name);
    const double size = y.size(), rounding = x.rounding + y.rounding + noise_of_double * size;
    worst.add(x.name, x.distance(y), to_the_bit ? 0 : rounding_margin * rounding, size);
  }
}

// pre_scaled divides F's input by sqrt(l), as does a pre-norm with gain and bias divided by sqrt(l).
Result pre_scaled_is_pre(const Context& given, const Pass& batch) {
  ModelConfig config = given.config.model;
  config.norm_affine = true;
  TestModel<double> scaled(given, with_placement(config, pre_scaled));
  TestModel<double> plain(given, with_placement(config, pre));
  for (std::size_t i = 0; i < plain.layout().blocks.size(); ++i) {
    const BlockParameters& p = plain.layout().blocks[i];
    for (const int vector :
         {p.attn.norm_in.weight, p.attn.norm_in.bias, p.ffn.norm_in.weight, p.ffn.norm_in.bias}) {
      if (vector == no_parameter) continue;
      const Parameter& gain = plain.layout()[vector];
      for (Index c = 0; c < gain.size; ++c)
        plain.parameters.at(gain)[c] /= std::sqrt(static_cast<double>(i + 1));
    }
  }
  Worst worst;
  compare(scaled, plain, batch, Tensor::matrix_gradient, false, worst);
  return worst.result("pre_scaled is pre with block l's gains divided by sqrt(l)");
}

Result mix_is_pre_or_post(const Context& given, const Pass& batch) {
  Worst worst;
  for (const auto& [fraction, placement] : {std::pair{0.0, pre}, {1.0, post}}) {
    ModelConfig config = given.config.model;
    config.mix_post_fraction = fraction;
    TestModel<double> mixed(given, with_placement(config, mix));
    TestModel<double> plain(given, with_placement(config, placement));
    compare(mixed, plain, batch, Tensor::vector_gradient, true, worst);
  }
  return worst.result("mix of fraction 0 is pre, of fraction 1 is post (to the bit)");
}

// For a single token, the gain sigma and the bias mean of N2's input make a layer or RMS norm N2 the
// identity. A sandwich with such N2 is pre-norm for that token.
Result sandwich_is_pre(const Context& given) {
  ModelConfig config = given.config.model;
  const bool centred = norm_row(config.norm).centred;
  config.norm_affine = true;
  config.norm_bias = centred;
  config.norm_eps_outside = false;
  TestModel<double> sandwiched(given, with_placement(config, sandwich));
  TestModel<double> plain(given, with_placement(config, pre));
  const TestBatch token(given, 1, 1);
  const std::vector<Tensor> pass = tensors_of(plain, token.view());
  for (std::size_t i = 0; i < plain.layout().blocks.size(); ++i) {
    const BlockParameters& p = sandwiched.layout().blocks[i];
    const std::pair<NormParameters, Site> after[] = {{p.attn.norm_branch, Site::attn_out},
                                                     {p.ffn.norm_branch, Site::ffn_out}};
    for (const auto& [norm, site] : after) {
      const std::vector<double>& branch = tensor_named(pass, site_name({static_cast<int>(i) + 1, site})).data;
      const double n = static_cast<double>(branch.size());
      double mean = 0, variance = 0;
      for (const double f : branch) mean += centred ? f / n : 0;
      for (const double f : branch) variance += (f - mean) * (f - mean) / n;
      sandwiched.set(norm.weight, std::sqrt(variance + config.norm_eps));
      sandwiched.set(norm.bias, mean);
    }
  }
  // Values only: sigma and mean are constants here, so gradients differ.
  Worst worst;
  compare(plain, sandwiched, token.view(), Tensor::value, false, worst);
  return worst.result("sandwich whose second norms are undone is pre (one token)");
}

}  // namespace

Outcome equivalences(const Context& given) {
  const ModelConfig& config = given.config.model;
  if (config.norm == NormKind::none) return "there is no norm to place";
  const TestBatch batch = small_batch(given);
  std::vector<Result> all;
  if (norm_row(config.norm).has_gain) all.push_back(pre_scaled_is_pre(given, batch.view()));
  all.push_back(mix_is_pre_or_post(given, batch.view()));
  const bool over_features = config.norm == NormKind::layernorm || config.norm == NormKind::rmsnorm;
  if (over_features && config.d_model > 1) all.push_back(sandwich_is_pre(given));
  return all;
}

// Logits of 0 are a uniform guess: its cross-entropy is ln V.
Outcome uniform_loss(const Context& given) {
  ModelConfig config = given.config.model;
  config.tie_embeddings = false;
  TestModel<double> model(given, config);
  model.set(model.layout().head, 0);
  const TestBatch batch = small_batch(given);
  const double want = std::log(static_cast<double>(given.corpus.vocab.size()));
  return vanishes(text("a head of zeros gives the loss ln V = ", want,
                       given.config.model.tie_embeddings ? " (untied)" : ""),
                  model.tape, [&] {
                    return std::vector<Residue>{{"loss", model.pass(batch.view()) - want, want}};
                  });
}

// The engine that trains (float, its SIMD, its fused attention, its GEMM) against the same model in double.
Outcome precision(const Context& given) {
  const ModelConfig& config = given.config.model;
  const Index vocab = given.corpus.vocab.size();
  const std::uint64_t seed = given.config.train.seed;
  Model<float> engine(config, vocab, gemm_provider(given.config.train));
  initialise(config, engine.layout(), seed, engine.parameters);
  perturb_1d_params(engine.layout(), seed, engine.parameters);
  Model<double> exact(config, vocab, GemmProvider::openblas);
  std::copy(engine.parameters.all().begin(), engine.parameters.all().end(), exact.parameters.all().begin());

  const TestBatch batch = small_batch(given, 2e10);
  const std::vector<Tensor> got = tensors_of(engine, batch.view());
  std::vector<Tensor> want = tensors_of(exact, batch.view());
  const Precision precision = given.config.train.precision;
  const double noise = precision == Precision::bf16 ? noise_of_bf16 : noise_of_float;
  find_rounding(exact, batch.view(), noise, want);

  const auto kind = [](const Tensor& t) { return std::min(t.kind, Tensor::matrix_gradient); };
  double largest[4] = {};  // of each kind; vectors count as matrices
  for (const Tensor& t : want) largest[kind(t)] = std::max(largest[kind(t)], t.size());
  Worst worst;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Tensor& t = want[i];
    const double size = t.size(), beside = t.kind >= Tensor::site_gradient ? largest[kind(t)] : 0;
    const double scale = std::max(size, share_of_largest * beside);
    if (scale > 0 && (scale < min_scale || scale > max_scale))
      return text(t.name, ", of size ", size, ", leaves the range of float32");
    if (scale > 0 && t.rounding > max_rounding * scale)
      return text("rounding alone moves ", t.name, ", of size ", size, ", by ", t.rounding);
    const double limit = rounding_margin * (t.rounding + noise * size + noise_of_float * beside);
    worst.add(t.name, got[i].distance(t), limit, scale);
  }
  return worst.result(text("the engine that trains (", name_of(precision),
                           ") equals the one in double but for rounding: loss, sites, gradients"));
}

}  // namespace normscope
