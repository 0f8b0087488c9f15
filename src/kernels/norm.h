// Norms of rows: layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019), group norm (Wu & He 2018).
//
//   y = gain * (x - mean) * rstd + bias, rstd = 1/sqrt(var + eps), or 1/(sqrt(var) + eps) with eps_outside
//
// One definition for the three: RMS norm leaves out the mean (centred = false); group norm takes the
// statistics over each of `groups` equal parts of a row (1: the whole row). The variance is the biased one.
#pragma once

#include "core/types.h"

namespace normscope {

template <class Real>
struct RowNorm {
  Index cols;    // C
  Index groups;  // divides cols
  bool centred;  // subtract the mean
  Real eps;
  bool eps_outside;
};

// x, y: (rows, cols); gain, bias: (cols) or null; mean, rstd: (rows, groups), kept for the backward. y may be
// rounded to bf16 (kernels/rounded.h).
template <class Real>
void norm_forward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* gain, const Real* bias,
                  Real* y, Real* mean, Real* rstd, bool rounded = false);

// dx = beta*dx + ...; dgain and dbias (cols, or null) are added to. With g = gain*dy and x̂ = (x - mean)*rstd:
//   dx = rstd (g - mean(g) - x̂ mean(g x̂)), dgain = sum over rows of dy x̂, dbias = sum over rows of dy.
// partials: scratch for 2 * norm_blocks(rows) * cols numbers, one set of sums a block of rows.
template <class Real>
void norm_backward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* mean, const Real* rstd,
                   const Real* gain, const Real* dy, Real* dx, Real beta, Real* dgain, Real* dbias,
                   Real* partials);

Index norm_blocks(Index rows);

}  // namespace normscope
