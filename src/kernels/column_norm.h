// Norms of columns: each feature over the rows of a group. Batch norm (Ioffe & Szegedy 2015): one group, all
// B*T rows; instance norm (Ulyanov et al. 2016): a group a sequence.
//
//   y = gain * (x - mean) * rstd + bias, rstd = 1/sqrt(var + eps), or 1/(sqrt(var) + eps) with eps_outside
//
// In a causal model both leak: a character's output depends on later characters.
#pragma once

#include "core/types.h"

namespace normscope {

template <class Real>
struct ColumnNorm {
  Index cols;        // C
  Index group_rows;  // rows that share a mean and a variance; divides the number of rows
  Real eps;
  bool eps_outside;
};

// x, y: (rows, cols); gain, bias: (cols) or null; mean, variance (biased), rstd: (groups, cols), for the
// backward.
template <class Real>
void column_norm_forward(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* gain,
                         const Real* bias, Real* y, Real* mean, Real* variance, Real* rstd);

// dx = beta*dx + ...; dgain and dbias (cols, or null) are added to. The formulas of kernels/norm.h, with
// columns in the place of rows.
template <class Real>
void column_norm_backward(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* mean,
                          const Real* rstd, const Real* gain, const Real* dy, Real* dx, Real beta,
                          Real* dgain, Real* dbias);

// y = gain * (x - mean) / sqrt(variance + eps) + bias with given statistics (cols each): batch norm in
// evaluation.
template <class Real>
void column_affine(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* mean,
                   const Real* variance, const Real* gain, const Real* bias, Real* y);

}  // namespace normscope
