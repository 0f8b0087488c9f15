// What a model must do: not look ahead, decode as it trains, start as its scheme says, not depend on threads.
#include <numeric>
#include <string>

#include "ops/dropout.h"
#include "tiny_model.h"
#include "train/step.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

using enum PlacementKind;
constexpr PlacementKind placements[] = {pre,         post,   sandwich,           peri, res_post,
                                        deepnorm,    keel,   pre_scaled,         mix,  hybrid,
                                        hybrid_star, rezero, PlacementKind::none};
constexpr Position positions[] = {Position::learned, Position::rope, Position::sinusoidal, Position::none};

// A text and a run on it: 16 sequences a step, in micro-batches of batch_size.
struct TinyRun {
  RunConfig config;
  std::vector<Token> text = integers(500, tiny_vocab, "text");

  explicit TinyRun(Index batch_size, double dropout = 0, PlacementKind placement = pre) {
    config.model = tiny_config(placement);
    config.model.dropout = dropout;
    config.train.batch_size = batch_size;
    config.train.grad_accum = 16 / batch_size;
  }
};

// Loss and gradients of step 3 of a run.
std::pair<StepResult, std::vector<float>> third_step(const TinyRun& run) {
  TinyModel<float> model(run.config.model);
  StepRunner runner(run.config, model, run.text);
  const StepResult result = runner.compute(3);
  return {result, model.gradients.all()};
}

template <class Real>
std::vector<Real> copy(std::span<const Real> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("model: changing a character changes no logit before it, to the bit, and its own") {
  for (const PlacementKind placement : placements) {
    for (const Position position : positions) {
      ModelConfig config = tiny_config(placement);
      config.position = position;
      config.qk_norm = placement == sandwich;
      config.context = 70;  // more than one block of queries
      TinyModel<float> model(config);
      const RandomBatch batch(1, config.context);
      const std::vector<float> before = copy(model.forward(batch.tokens));
      for (const Index t : {0, 1, 37, 64, 69}) {
        std::vector<std::int32_t> changed = batch.tokens;
        std::int32_t& token = changed[static_cast<std::size_t>(t)];
        token = static_cast<std::int32_t>((token + 1) % tiny_vocab);
        const std::vector<float> after = copy(model.forward(changed));
        const auto border = t * tiny_vocab;
        CHECK(std::equal(before.begin(), before.begin() + border, after.begin()));
        CHECK_FALSE(std::equal(before.begin() + border, before.begin() + border + tiny_vocab,
                               after.begin() + border));
      }
    }
  }
}

TEST_CASE("model: a head of zeros gives ln V") {
  for (const PlacementKind placement : placements) {
    ModelConfig config = tiny_config(placement);
    config.tie_embeddings = false;
    TinyModel<double> model(config);
    const Parameter& head = model.layout()[model.layout().head];
    std::fill_n(model.parameters.at(head), head.size, 0.0);
    CHECK(std::abs(model.loss(RandomBatch(2, 5).view()) - std::log(7.0)) <= 1e-14);
  }
}

TEST_CASE("model: identities between placements") {
  const RandomBatch batch(2, 5);
  const auto loss_of = [&](const ModelConfig& config) {
    return TinyModel<double>(config).loss(batch.view());
  };
  ModelConfig one_block = tiny_config(pre_scaled);
  one_block.n_layer = 1;  // 1/sqrt(1): pre
  ModelConfig one_block_pre = tiny_config(pre);
  one_block_pre.n_layer = 1;
  CHECK(loss_of(one_block) == loss_of(one_block_pre));
  CHECK(loss_of(tiny_config(pre_scaled)) != loss_of(tiny_config(pre)));

  ModelConfig mixed = tiny_config(mix);
  mixed.mix_post_fraction = 0;
  CHECK(loss_of(mixed) == loss_of(tiny_config(pre)));
  mixed.mix_post_fraction = 1;
  mixed.final_norm = false;
  CHECK(loss_of(mixed) == loss_of(tiny_config(post)));

  const ModelConfig zero = tiny_config(rezero, NormKind::none);
  Model<double> model(zero, tiny_vocab, GemmProvider::openblas);
  initialise(zero, model.layout(), 1, model.parameters);  // a = 0: no block does anything
  struct : TapListener<double> {
    std::vector<std::vector<double>> values, gradients;
    void on_value(Place place, const Matrix<double>& v) override {
      if (place.site == Site::stream) values.emplace_back(v.data, v.data + v.size());
    }
    void on_gradient(Place place, const Matrix<double>& v) override {
      if (place.site == Site::stream) gradients.emplace_back(v.data, v.data + v.size());
    }
  } streams;
  model.loss_and_gradients(batch.view(), 1, &streams);
  CHECK(streams.values.front() == streams.values.back());
  CHECK(scaled_error(streams.gradients.front(), streams.gradients.back()) <= 1e-15);
  for (const Parameter& p : model.layout().list()) {
    if (!p.name.starts_with("blocks.") || !p.is_matrix()) continue;
    const double* g = model.gradients.at(p);
    CHECK(std::all_of(g, g + p.size, [](double x) { return x == 0; }));
  }
}

TEST_CASE("step: two micro-batches of 8 equal one batch of 16") {
  for (const double dropout : {0.0, 0.2}) {  // masks depend on the sequence, not on the split
    const auto [whole, whole_gradients] = third_step(TinyRun(16, dropout));
    const auto [half, half_gradients] = third_step(TinyRun(8, dropout));
    const auto [single, single_gradients] = third_step(TinyRun(1, dropout));
    CHECK(std::abs(whole.loss - half.loss) <= 1e-5 * whole.loss);
    CHECK(std::abs(whole.loss - single.loss) <= 1e-5 * whole.loss);
    CHECK(std::abs(whole.grad_norm() - half.grad_norm()) <= 1e-5 * whole.grad_norm());
    CHECK(scaled_error(half_gradients, whole_gradients) <= 1e-5);
    CHECK(scaled_error(single_gradients, whole_gradients) <= 1e-5);
  }
}

TEST_CASE("step: configs that differ in placement share weights and batches") {
  const TinyRun reference(8);
  TinyModel<float> reference_model(reference.config.model);
  StepRunner reference_runner(reference.config, reference_model, reference.text);
  const ParameterLayout reference_layout(reference.config.model, tiny_vocab);
  ParameterBlock<float> reference_weights(reference_layout);
  initialise(reference.config.model, reference_layout, 5, reference_weights);
  for (const PlacementKind placement : placements) {
    const TinyRun run(8, 0, placement);
    TinyModel<float> model(run.config.model);
    StepRunner runner(run.config, model, run.text);
    for (const Index step : {1, 2, 1000}) {
      for (const Index micro : {0, 1}) {
        runner.fill(step, micro);
        reference_runner.fill(step, micro);
        CHECK(std::ranges::equal(runner.last_batch().tokens, reference_runner.last_batch().tokens));
        CHECK(std::ranges::equal(runner.last_batch().targets, reference_runner.last_batch().targets));
      }
    }
    const ParameterLayout layout(run.config.model, tiny_vocab);
    ParameterBlock<float> weights(layout);
    initialise(run.config.model, layout, 5, weights);
    const double beta = placement == deepnorm ? std::pow(16.0, -0.25) : 1;  // (8L)^(-1/4)
    int shared = 0;
    for (const Parameter& p : layout.list()) {
      const int index = reference_layout.find(p.name);
      if (index == no_parameter || !p.is_matrix()) continue;
      ++shared;
      const float *a = weights.at(p), *b = reference_weights.at(reference_layout[index]);
      const bool qkv = p.name.ends_with("qkv.weight");
      for (Index i = 0; i < p.size; ++i) {
        const double gain = p.layer > 0 && (!qkv || i >= p.size / 3 * 2) ? beta : 1;
        if (gain == 1) {
          CHECK(a[i] == b[i]);
        } else {
          CHECK(std::abs(a[i] - gain * b[i]) <= 1e-6 * std::abs(b[i]));
        }
      }
    }
    CHECK(shared == 2 + 2 * 4);
  }
}

TEST_CASE("model: dropout keeps the mean, is off outside training, and differs by step, place and sequence") {
  Tape<double> tape;
  tape.reset();
  std::vector<double> ones(40000, 1.0), gradient(40000);
  const Dropout drop{0.3, RandomStream(1, "test"), 10, 0};
  const Var<double> x = tape.parameter(ones.data(), gradient.data(), 400, 100);
  const Var<double> y = dropout(tape, drop, x);
  const double mean = std::accumulate(y.data, y.data + y.size(), 0.0) / 40000;
  CHECK(std::abs(mean - 1) <= 4 * std::sqrt(0.3 / 0.7 / 40000));
  const auto zeros = std::count(y.data, y.data + y.size(), 0.0);
  CHECK(std::abs(static_cast<double>(zeros) / 40000 - 0.3) <= 4 * std::sqrt(0.3 * 0.7 / 40000));
  CHECK_FALSE(std::equal(y.data, y.data + 1000, y.data + 1000));  // sequences of 10 rows of 100
  CHECK(dropout(tape, Dropout{}, x).data == x.data);

  ModelConfig config = tiny_config();
  config.dropout = 0.3;
  TinyModel<double> with(config);
  TinyModel<double> without(tiny_config());
  const RandomBatch batch(2, 5);
  const auto training_loss = [&](std::uint64_t step) {
    return with.loss_and_gradients(batch.training(RandomStream(1, "dropout").at(step)));
  };
  CHECK(with.loss(batch.view()) == without.loss(batch.view()));
  CHECK(with.loss_and_gradients(batch.view()) == without.loss(batch.view()));
  CHECK(training_loss(1) != without.loss(batch.view()));
  CHECK(training_loss(1) == training_loss(1));
  CHECK(training_loss(1) != training_loss(2));
}

TEST_CASE_TEMPLATE("model: decoding with a cache equals the whole forward pass", Real, float, double) {
  for (const PlacementKind placement : placements) {
    for (const Position position : positions) {
      for (const bool qk_norm : {false, true}) {
        ModelConfig config = tiny_config(placement);
        config.position = position;
        config.qk_norm = qk_norm;
        config.context = 12;
        TinyModel<Real> model(config);
        const RandomBatch batch(1, 12);
        const std::span<const std::int32_t> tokens(batch.tokens);
        const std::vector<Real> whole = copy(model.forward(tokens));
        KeyValueCache<Real> cache(config);
        std::vector<Real> decoded;
        for (const auto& [begin, count] :
             {std::pair<std::size_t, std::size_t>{0, 5}, {5, 1}, {6, 1}, {7, 3}, {10, 1}, {11, 1}}) {
          const std::span<const Real> logits = model.forward(tokens.subspan(begin, count), &cache);
          decoded.insert(decoded.end(), logits.begin(), logits.end());
        }
        CHECK(cache.length == 12);
        CHECK(scaled_error(decoded, whole) <= pick<Real>(1e-5, 1e-13));
        CHECK_THROWS(model.forward(tokens.subspan(0, 1), &cache));  // full
      }
    }
  }
}

TEST_CASE("model: same bits at 1, 2, 3 and 4 threads, by every provider of products") {
  for (const GemmProvider provider :
       {GemmProvider::openblas, GemmProvider::native, GemmProvider::reference}) {
    for (const Position position : {Position::learned, Position::rope}) {
      ModelConfig config = tiny_config(position == Position::rope ? peri : pre);
      config.d_model = 48;
      config.d_ff = 200;
      config.n_head = 3;
      config.context = 70;
      config.dropout = 0.1;
      config.position = position;
      config.bias = config.ffn_bias = true;
      config.qk_norm = position == Position::rope;
      const RandomBatch batch(3, 70, 67);
      CHECK(same_bits_at_any_thread_count([&] {
        TinyModel<float> model(config, 67, provider);
        std::vector<float> result;
        const double loss =
            model.loss_and_gradients(batch.training(RandomStream(1, "dropout")), 1, nullptr, &result);
        result.push_back(static_cast<float>(loss));
        result.insert(result.end(), model.gradients.all().begin(), model.gradients.all().end());
        return result;
      }));
    }
  }
}

TEST_CASE("model: batch norm's running statistics move with the step, and evaluation uses them") {
  ModelConfig config = tiny_config(PlacementKind::pre, NormKind::batchnorm);
  TinyModel<double> model(config);
  const RandomBatch batch(2, config.context);
  const NormParameters& norm = model.layout().blocks[0].attn.norm_in;
  const Parameter &mean = model.layout().buffers()[norm.running_mean],
                  &variance = model.layout().buffers()[norm.running_var];
  CHECK(mean.name == "blocks.0.attn_norm.running_mean");
  CHECK(variance.name == "blocks.0.attn_norm.running_var");

  struct FirstInput : TapListener<double> {
    std::vector<double> stream;
    void on_value(Place place, const Matrix<double>& value) override {
      if (place == Place{0, Site::stream}) stream.assign(value.data, value.data + value.size());
    }
    void on_gradient(Place, const Matrix<double>&) override {}
  } input;
  const double before = model.loss(batch.view());
  model.loss_and_gradients(batch.view(), 1, &input);
  CHECK(model.loss(batch.view()) == before);  // a step that is not taken leaves them alone
  model.running.move(model.running.batch);
  const Index n = std::ssize(input.stream) / config.d_model;
  for (Index c = 0; c < config.d_model; ++c) {
    double sum = 0, squares = 0;
    for (Index row = 0; row < n; ++row)
      sum += input.stream[static_cast<std::size_t>(row * config.d_model + c)];
    const double mu = sum / static_cast<double>(n);
    for (Index row = 0; row < n; ++row) {
      const double centred = input.stream[static_cast<std::size_t>(row * config.d_model + c)] - mu;
      squares += centred * centred;
    }
    CHECK(model.running.values[mean.offset + c] == doctest::Approx(0.1 * mu).epsilon(1e-9));
    CHECK(model.running.values[variance.offset + c] ==
          doctest::Approx(0.9 + 0.1 * squares / static_cast<double>(n - 1)).epsilon(1e-9));
  }
  CHECK(model.loss(batch.view()) != before);

  // Micro-batch by micro-batch, in their order.
  std::vector<double> old = model.running.values, two;
  for (const double more : {1.0, 3.0})
    for (const double x : model.running.batch) two.push_back(x + more);
  model.running.move(two);
  for (std::size_t i = 0; i < old.size(); ++i) {
    const double want = 0.9 * (0.9 * old[i] + 0.1 * two[i]) + 0.1 * two[old.size() + i];
    CHECK(model.running.values[i] == doctest::Approx(want).epsilon(1e-12));
  }
}
