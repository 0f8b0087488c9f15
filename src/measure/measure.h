// Measures of a model that cost more than a row of a log.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"

namespace normscope {

// The curvature of the loss at the weights.
struct Sharpness {
  double value = 0;             // the largest eigenvalue of the Hessian of the batch's loss in all parameters
  double residual = 0;          // an eigenvalue lies within so much of it
  double difference_error = 0;  // relative: of a product H v, between differences over h and over 2h
  Index products = 0;           // the number of Hessian-vector products
};

// The first five are of the stream x_l, l = 0 (the embedding) to L.
struct Measure {
  enum : std::size_t {
    // Loss (nats) of the final norm and the head on x_l (the logit lens: nostalgebraist 2020). The norm's
    // statistics are those of x_l; batch norm's are of the batch, since its running ones are of x_L. At L
    // everything is as in evaluation.
    lens,
    // Loss (nats) where x_l = x_{l-1} (Veit et al. 2016, arXiv 1605.06431). Layer 0 has none.
    without,
    // Effective rank of the tokens' (N, C) matrix, not centred: e^H, H = -sum p ln p, p the singular values
    // over their sum (Roy & Vetterli 2007). From 1 to C.
    rank,
    // Mean cosine of two different tokens of a sequence (Ethayarajh 2019, arXiv 1909.00512). None where T
    // is 1.
    token_cosine,
    // The sum over a batch of |x_l' - x_l|^2 over that of |x_l|^2, over d^2, where in x' every entry of the
    // blocks' matrices is multiplied by 1 + d N(0, 1). The mean over 8 draws; of x_L what `predict` calls so.
    amplification,
    sharpness
  };
};
constexpr std::array measure_names = {"lens",         "without",       "rank",
                                      "token_cosine", "amplification", "sharpness"};
using Wanted = std::array<bool, measure_names.size()>;

struct Measures {
  double loss = 0;                                                            // of evaluation, nats
  std::vector<std::array<std::optional<double>, Measure::sharpness>> layers;  // empty unless wanted
  double amplification_error = 0;  // of that of x_L: standard error
  std::optional<Sharpness> sharpness;
};

// On `batches` of `batch_size` whole windows of the text, evenly spaced as those of an evaluation (0: all);
// amplification and sharpness on one batch, in double.
Measures measure(Model<float>& model, std::span<const std::int32_t> text, Index batch_size, Index batches,
                 const Wanted& wanted);

}  // namespace normscope
