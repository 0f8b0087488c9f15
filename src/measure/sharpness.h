// The curvature of the loss where the weights stand.
#pragma once

#include "model/model.h"

namespace normscope {

struct Sharpness {
  double value = 0;             // the largest eigenvalue of the Hessian of the batch's loss in all parameters
  double residual = 0;          // an eigenvalue lies within so much of it
  double difference_error = 0;  // relative: of a product H v, between differences over h and over 2h
  Index products = 0;           // Hessian-vector products that it took
};

// By Lanczos' recurrence (1950) from a random vector, until the residual is 1e-3 of the value, or 200
// products. H v is a central difference of gradients, (g(w + hv) - g(w - hv)) / 2h. The loss is that of a
// training step: batch norm by the batch's own statistics, no dropout. The weights end as they began.
Sharpness sharpness(Model<double>& model, Pass batch);

}  // namespace normscope
