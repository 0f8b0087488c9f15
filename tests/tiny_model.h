// A model small enough for finite differences, with every 1-D parameter off its start.
#pragma once

#include "check/check.h"
#include "helpers.h"
#include "model/model.h"

namespace normscope::testing {

constexpr Index tiny_vocab = 7;

inline ModelConfig tiny_config(PlacementKind placement = PlacementKind::pre,
                               NormKind norm = NormKind::layernorm) {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.d_model = 8;
  config.norm_groups = 2;  // groups of 2 features would normalise to +-1, whatever the input: no gradient
  config.d_ff = 12;
  config.context = 5;
  config.norm = norm;
  config.norm_placement = {placement};
  config.final_norm = placement_row(placement).final_norm;
  config.qkv_norm = placement_row(placement).qkv_norm;
  config.init = {InitScheme::xavier_normal, 0.02, 0.5, false};
  return config;
}

// A model with its first weights, ready for a test.
template <class Real>
struct TinyModel : Model<Real> {
  explicit TinyModel(const ModelConfig& config, Index vocab = tiny_vocab,
                     GemmProvider provider = GemmProvider::openblas)
      : Model<Real>(config, vocab, provider) {
    initialise(config, this->layout(), 1, this->parameters);
    move_off_constants(this->layout(), 1, this->parameters);
  }
};

// A batch of `sequences` drawn at random.
struct RandomBatch {
  RandomBatch(Index sequences, Index context_length, Index vocab = tiny_vocab)
      : tokens(integers(sequences * context_length, vocab, "tokens")),
        targets(integers(sequences * context_length, vocab, "targets")),
        context(context_length) {}
  Pass view() const { return {tokens, targets, context}; }
  Pass training(const RandomStream& dropout) const { return {tokens, targets, context, true, dropout}; }

  std::vector<std::int32_t> tokens, targets;
  Index context;
};

}  // namespace normscope::testing
