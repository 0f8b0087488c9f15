// A model small enough for a derivative by every parameter, with every 1-D parameter off its start.
#pragma once

#include "check/check.h"
#include "config_texts.h"
#include "helpers.h"
#include "model/model.h"

namespace normscope::testing {

constexpr Index tiny_vocab = 7;

// A tiny model with these --set options. Groups of 2 features would normalise to +-1, whatever the input: no
// gradient; so there are 2 groups of 4.
inline ModelConfig tiny_config(const std::string& sets = "") {
  return config_of(
             "model.n_layer=2 model.n_head=2 model.d_model=8 model.norm_groups=2 model.d_ff=12 "
             "model.context=5 model.init.scheme=xavier_normal model.init.embed_std=0.5 " +
             sets)
      .model;
}

// A model with its first weights, ready for a test.
template <class Real>
struct TinyModel : Model<Real> {
  explicit TinyModel(const ModelConfig& config) : Model<Real>(config, tiny_vocab, GemmProvider::openblas) {
    initialise(config, this->layout(), 1, this->parameters);
    move_off_constants(this->layout(), 1, this->parameters);
  }
};

// A batch of `sequences` drawn at random.
struct RandomBatch {
  RandomBatch(Index sequences, Index context_length)
      : tokens(integers(sequences * context_length, tiny_vocab, "tokens")),
        targets(integers(sequences * context_length, tiny_vocab, "targets")),
        context(context_length) {}
  Pass view() const { return {tokens, targets, context}; }

  std::vector<std::int32_t> tokens, targets;
  Index context;
};

}  // namespace normscope::testing
