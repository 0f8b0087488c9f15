// The engine that trains (float, its SIMD, its fused attention, its GEMM) against the same model in double.
#include <algorithm>

#include "check/test_model.h"
#include "config/names.h"

namespace normscope {
namespace {

// What the engine rounds by. Float: 2^-24 is half of its spacing; four times that, as results of long sums
// and of several steps are one number on the tape. bf16: half of its spacing, as all else is float.
constexpr double noise_of_float = 0x1p-22, noise_of_bf16 = 0x1p-9;

// Gradients far smaller than the largest are compared with it: they may be nothing but rounding.
constexpr double share_of_largest = 0.03;

// Where squares leave the range of a float, or what is left of a number after its product with others.
constexpr double least_of_float = 1e-30, most_of_float = 1e18;

}  // namespace

Outcome precision(const Context& given) {
  const ModelConfig& config = given.config.model;
  const Index vocab = given.corpus.vocab.size();
  const auto seed = static_cast<std::uint64_t>(given.config.train.seed);
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
  double largest[4] = {};  // of each kind, vectors with matrices
  for (const Tensor& t : want) largest[kind(t)] = std::max(largest[kind(t)], t.size());
  Worst worst;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Tensor& t = want[i];
    const double size = t.size(), beside = t.kind >= Tensor::site_gradient ? largest[kind(t)] : 0;
    const double scale = std::max(size, share_of_largest * beside);
    if (scale > 0 && (scale < least_of_float || scale > most_of_float)) {
      return text(t.name, ", of size ", size, ", leaves the range of float32");
    }
    if (scale > 0 && t.rounding > max_rounding * scale) {
      return text("rounding alone moves ", t.name, ", of size ", size, ", by ", t.rounding);
    }
    const double limit = rounding_margin * (t.rounding + noise * size + noise_of_float * beside);
    worst.add(t.name, got[i].distance(t), limit, scale);
  }
  return worst.result(text("the engine that trains (", name_of(precision),
                           ") equals the one in double but for rounding: loss, sites, gradients"));
}

}  // namespace normscope
