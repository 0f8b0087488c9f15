// The whole model's gradient against central differences, tensor by tensor.
#pragma once

#include <string>

#include "model/model.h"

namespace normscope {

struct DifferenceError {
  double worst = 0;    // over the parameters; infinite where no step can be used
  std::string tensor;  // where
};

// `gradients`: what is claimed to be the gradient of the batch's loss. For each parameter W with gradient g,
// along a direction d of length 1 that is half g's own and half random (alone, a random one sees only
// 1/sqrt(size) of an error in g):
//   |(loss(W + h d) - loss(W - h d)) / 2h - <g, d>| / (|g| + 1e-7 |largest g| + 1e-9 loss),
// the least over h = 1e-2 ... 1e-7 of |W|. Rounding is what the two small terms are for: a bias that a norm
// takes away again has a gradient of exactly 0. With ReLU, only steps that leave every unit on its side of
// the kink.
DifferenceError finite_difference_error(Model<double>& model, const TokenBatch& batch,
                                        const ParameterBlock<double>& gradients);

}  // namespace normscope
