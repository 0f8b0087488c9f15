// Cross-entropy of logits. (The softmax of attention is part of its fused kernel: attention.h.)
#pragma once

#include "kernels/softmax.h"

namespace normscope {

// loss[i] = logsumexp(row i) - row[target], nats. logits: (rows, classes); stats: (rows), kept for the
// backward.
template <class Real>
void cross_entropy_forward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                           Real* loss, SoftmaxStats<Real> stats);

// dlogits = beta*dlogits + (softmax(row) - onehot(target)) * scale.
template <class Real>
void cross_entropy_backward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                            SoftmaxStats<Real> stats, Real scale, Real* dlogits, Real beta);

}  // namespace normscope
