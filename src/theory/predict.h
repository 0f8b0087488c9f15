// What a probe will measure, from the config and the text's statistics alone: no weight is drawn.
//
// Mean-field theory of a decoder with fresh weights. Weights are independent and of mean 0, so a sublayer's
// output is uncorrelated with what it joins, and kernels add; backward alike. Dropout is off, as in a probe.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/site.h"
#include "theory/head.h"

namespace normscope {

struct SitePrediction {
  Place place;
  double rms = 0, grad_rms = 0;
  double rms_spread = 0, spread = 0;  // standard deviations from seed to seed, over rms and grad_rms: about
};

struct LayerPrediction {                // 0: the embedding output
  double similarity = 0;                // cosine of two tokens of a sequence, mean over pairs
  double share = 0;                     // cos(x_0, x_l): what is left of the input in the stream
  double entropy = 0;                   // of attention, mean over queries
  double score_std = 0, max_score = 0;  // of the last query; the largest expected: score_std sqrt(2 ln T)
};

struct Prediction {
  std::vector<SitePrediction> sites;  // in the order of layers.csv
  std::vector<LayerPrediction> layers;
  double loss = 0;
  // Noise of relative variance d^2 in every matrix changes the stream by A d^2, relatively.
  double amplification = 0;

  // Of the stream, from operands rounded to bf16; relative rms. Rounding is off by a uniform draw within 2^-8
  // of a mantissa that is log-uniform in [1, 2), whose mean 1/m^2 is (1 - 1/4) / (2 ln 2). A product rounds
  // two operands.
  double bf16_error() const {
    const double variance = std::exp2(-16) / 3 * 0.75 / (2 * std::numbers::ln2);
    return std::sqrt(2 * variance * amplification);
  }
};

struct TheoryOptions {
  Index batch = 1;           // sequences over which a norm over the batch goes
  double cell_growth = 1.4;  // see AttentionScale
  bool finite_width = true;  // terms of order 1/C of the norms; false: the limit of wide layers
};

// `tokens`: of a step's batch, over which the loss is a mean. Usage Error `[predict] no prediction: ...`
// where the theory has none.
Prediction predict(const ModelConfig& config, double tokens, const TextStatistics& text,
                   const TheoryOptions& options = {});

}  // namespace normscope
