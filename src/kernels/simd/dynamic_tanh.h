// Dynamic tanh on vectors.
#pragma once

#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
void dynamic_tanh_forward(Index begin, Index end, Index cols, Real alpha, const Real* x, const Real* gain,
                          const Real* bias, Real* y) {
  for (Index row = begin; row < end; ++row) {
    each_vector<Real>(cols, [&](Index c, auto part) {
      Vec<Real> v = tanh(Vec<Real>(alpha * part.get(x + row * cols + c)));
      if (gain != nullptr) v *= part.get(gain + c);
      if (bias != nullptr) v += part.get(bias + c);
      part.put(y + row * cols + c, v);
    });
  }
}

// dgain and dbias: sums of this block, added to. Returns this block's part of dalpha.
template <class Real>
Real dynamic_tanh_backward(Index begin, Index end, Index cols, Real alpha, const Real* x, const Real* gain,
                           const Real* dy, Real* dx, Real beta, Real* dgain, Real* dbias) {
  Vec<Real> dalpha{};
  for (Index row = begin; row < end; ++row) {
    each_vector<Real>(cols, [&](Index c, auto part) {
      const Index at = row * cols + c;
      const Vec<Real> v = part.get(x + at), d = part.get(dy + at);
      const Vec<Real> t = tanh(Vec<Real>(alpha * v));
      const Vec<Real> g = gain != nullptr ? Vec<Real>(d * part.get(gain + c)) : d;
      const Vec<Real> inner = g * (1 - t * t);
      dalpha += inner * v;
      add_into(dx + at, beta, Vec<Real>(alpha * inner), part);
      if (dgain != nullptr) part.put(dgain + c, Vec<Real>(part.get(dgain + c) + d * t));
      if (dbias != nullptr) part.put(dbias + c, Vec<Real>(part.get(dbias + c) + d));
    });
  }
  return sum_lanes<Real>(dalpha);
}

}  // namespace normscope::NORMSCOPE_ISA
