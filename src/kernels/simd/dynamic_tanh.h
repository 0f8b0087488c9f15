// Dynamic tanh on vectors.
#pragma once

#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
void dynamic_tanh_forward(Index begin, Index end, Index cols, Real alpha, const Real* x, const Real* gain,
                          const Real* bias, Real* y) {
  for (Index row = begin; row < end; ++row) {
    for_each_vector<Real>(cols, [&](Index c, auto part) {
      Vec<Real> v = tanh(Vec<Real>(alpha * part.get(x + row * cols + c))).value;
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
  WideVec<Real> dalpha{};  // one number of rows * cols terms
  for (Index row = begin; row < end; ++row) {
    for_each_vector<Real>(cols, [&](Index c, auto part) {
      const Index at = row * cols + c;
      const Vec<Real> v = part.get(x + at), d = part.get(dy + at);
      const ValueAndSlope<Real> t = tanh(Vec<Real>(alpha * v));
      const Vec<Real> g = gain != nullptr ? Vec<Real>(d * part.get(gain + c)) : d;
      const Vec<Real> inner = g * t.slope;
      dalpha += __builtin_convertvector(Vec<Real>(inner * v), WideVec<Real>);
      add_into(dx + at, beta, Vec<Real>(alpha * inner), part);
      if (dgain != nullptr) part.put(dgain + c, Vec<Real>(part.get(dgain + c) + d * t.value));
      if (dbias != nullptr) part.put(dbias + c, Vec<Real>(part.get(dbias + c) + d));
    });
  }
  return static_cast<Real>(sum_wide<Real>(dalpha));
}

}  // namespace normscope::NORMSCOPE_ISA
