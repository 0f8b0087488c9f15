// The project on one page: the engine alone trains a pre-norm and a post-norm transformer of six blocks, and
// prints the activation and the gradient of every layer: build/tests/test_minimal
#include <doctest/doctest.h>

#include <cstdio>

#include "data/batches.h"
#include "kernels/update_rules.h"
#include "logs/site_stats.h"
#include "model/model.h"
#include "ops/cross_entropy.h"

using namespace normscope;

namespace {

struct Trained {
  std::vector<float> losses;     // of each step
  std::vector<SiteRow> streams;  // of layers 0 (the embedding) to L in the last step
};

// Twenty steps from the same initial weights and batches for every placement.
Trained train(PlacementKind placement, const Corpus& corpus) {
  constexpr Index B = 8, T = 32, C = 64;
  ModelConfig config;
  config.n_layer = 6, config.n_head = 4, config.d_model = C, config.d_ff = 4 * C, config.context = T;
  config.norm_placement = {placement};
  config.final_norm = placement == PlacementKind::pre;  // a block of post-norm ends in a norm
  config.init.scheme = InitScheme::xavier_normal, config.init.embed_std = 1;
  config.tie_embeddings = false;
  const Transformer<float> transformer(config, corpus.vocab.size(), {});
  ParameterBuffer<float> weights(transformer.layout()), gradients = weights, m = weights, v = weights;
  RunningStatistics<float> running(transformer.layout());  // batch norm's
  initialise(config, transformer.layout(), /*seed=*/1, weights);

  const BatchSampler sampler(corpus.train, T, /*seed=*/1);
  std::vector<Token> tokens(B * T), targets(B * T);
  Tape<float> tape;
  SiteStatistics statistics(config);
  tape.set_listener(&statistics);
  AdamW<float> adamw{1, 0.9f, 0.99f, 0.1f, 0.01f, /*eps=*/1e-8f, /*decay=*/1, 0, 0};
  float beta1_power = 1, beta2_power = 1;
  Trained trained;
  for (int step = 1; step <= 20; ++step) {
    sampler.fill(step, 0, B, tokens.data(), targets.data());
    tape.reset();
    statistics.clear();
    // forward
    const Pass batch{.tokens = tokens, .targets = targets, .context = T};
    const auto logits = transformer.logits(tape, weights, &gradients, running, batch);  // (B*T, V)
    const auto loss = cross_entropy(tape, logits, batch.targets);
    trained.losses.push_back(loss.data[0]);
    // backward
    gradients.clear();
    tape.backward(loss);
    // update
    adamw.step_size = 1e-3f / (1 - (beta1_power *= adamw.beta1));
    adamw.inv_sqrt_correction2 = 1 / std::sqrt(1 - (beta2_power *= adamw.beta2));
    for (std::size_t i = 0; i < weights.all().size(); ++i)
      adamw(gradients.all()[i], weights.all()[i], m.all()[i], v.all()[i]);
  }
  trained.streams = statistics.rows();
  std::erase_if(trained.streams, [](const SiteRow& row) { return row.id.site != Site::stream; });
  return trained;
}

}  // namespace

TEST_CASE("minimal: pre-norm's stream grows with depth, post-norm's gradient fades on its way down") {
  const Corpus corpus = load_corpus({NORMSCOPE_SOURCE_DIR "/data/austen.txt"}, 0.1, "", /*context=*/32);
  const Trained pre = train(PlacementKind::pre, corpus), post = train(PlacementKind::post, corpus);
  std::printf("\nlayer  activation: pre   post   gradient: pre      post\n");
  for (std::size_t l = 0; l <= 6; ++l)
    std::printf("%5zu %15.2f %6.2f %15.1e %9.1e\n", l, pre.streams[l].rms, post.streams[l].rms,
                pre.streams[l].grad_rms, post.streams[l].grad_rms);
  for (const Trained& run : {pre, post}) CHECK(run.losses.back() < 0.7 * run.losses.front());
  CHECK(pre.streams[6].rms > 3 * pre.streams[0].rms);
  CHECK(post.streams[1].grad_rms < 0.3 * post.streams[6].grad_rms);
}
