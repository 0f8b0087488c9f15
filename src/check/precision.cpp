// Logits of 0 give ln V; the engine that trains gives what the same model gives in double.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {

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
                  {{"loss", model.pass(batch.view()) - want, want}});
}

// The engine that trains (float, its SIMD, its fused attention, its GEMM) against the same model in double.
Outcome precision(const Context& given) {
  const ModelConfig& config = given.config.model;
  const Index vocab = given.corpus.vocab.size();
  const std::uint64_t seed = given.config.train.seed;
  Model<float> engine(config, vocab, given.config.train.gemm_mode());
  initialise(config, engine.layout(), seed, engine.parameters);
  perturb_1d_params(engine.layout(), seed, engine.parameters);
  Model<double> exact(config, vocab, GemmProvider::openblas);
  std::copy(engine.parameters.all().begin(), engine.parameters.all().end(), exact.parameters.all().begin());

  const TestBatch batch = small_batch(given, 2e10);
  const std::vector<Tensor> got = tensors_of(engine, batch.view()), want = tensors_of(exact, batch.view());
  const std::vector<double> scales = scales_of(want);
  const Precision precision = given.config.train.precision;
  const double limit = precision == Precision::bf16 ? 5e-2 : 1e-4;
  Worst worst;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double scale = scales[i];
    constexpr double min_scale = 1e-30, max_scale = 1e18;  // beyond, squares may leave the range of a float
    if (scale > 0 && (scale < min_scale || scale > max_scale))
      return text(want[i].name, ", of size ", scale, ", leaves the range of float32");
    worst.add(want[i].name, got[i].distance(want[i]), limit * scale, scale);
  }
  Result result = worst.result(text("the engine that trains (", name_of(precision),
                                    ") equals the one in double: loss, sites, gradients"));
  if (result.holds()) return result;

  const double rounding = precision == Precision::bf16 ? 0x1p-9 : 0x1p-22;
  const std::string chaotic = chaotic_tensor(exact, batch.view(), rounding, limit / 3);
  if (!chaotic.empty()) return "chaotic, " + chaotic;
  return result;
}

}  // namespace normscope
