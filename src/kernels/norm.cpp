#include "kernels/norm.h"

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/elementwise.h"
#include "kernels/rounded.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 32;

}  // namespace

Index norm_blocks(Index rows) { return block_count(rows, rows_per_block); }

template <class Real>
void norm_forward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* gain, const Real* bias,
                  Real* y, Real* mean, Real* rstd, bool rounded) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    if (!rounded) return simd<Real>().norm_forward(norm, begin, end, x, gain, bias, y, mean, rstd);
    struct Block;
    Real* block = thread_scratch<Real, Block>(rows_per_block * norm.cols);
    simd<Real>().norm_forward(norm, 0, end - begin, x + begin * norm.cols, gain, bias, block,
                              mean + begin * norm.groups, rstd + begin * norm.groups);
    round_block(end - begin, norm.cols, block, y + begin * rounded_cols(norm.cols));
  });
}

template <class Real>
void norm_backward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* mean, const Real* rstd,
                   const Real* gain, const Real* dy, Real* dx, Real beta, Real* dgain, Real* dbias,
                   Real* partials) {
  const Index blocks = norm_blocks(rows);
  Real* gain_partials = dgain != nullptr ? partials : nullptr;
  Real* bias_partials = dbias != nullptr ? partials + blocks * norm.cols : nullptr;
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    const Index block = begin / rows_per_block;
    Real* gain_sum = gain_partials != nullptr ? gain_partials + block * norm.cols : nullptr;
    Real* bias_sum = bias_partials != nullptr ? bias_partials + block * norm.cols : nullptr;
    if (gain_sum != nullptr) std::fill_n(gain_sum, norm.cols, Real(0));
    if (bias_sum != nullptr) std::fill_n(bias_sum, norm.cols, Real(0));
    simd<Real>().norm_backward(norm, begin, end, x, mean, rstd, gain, dy, dx, beta, gain_sum, bias_sum);
  });
  if (dgain != nullptr) add_rows(blocks, norm.cols, gain_partials, dgain);
  if (dbias != nullptr) add_rows(blocks, norm.cols, bias_partials, dbias);
}

template void norm_forward(const RowNorm<float>&, Index, const float*, const float*, const float*, float*,
                           float*, float*, bool);
template void norm_forward(const RowNorm<double>&, Index, const double*, const double*, const double*,
                           double*, double*, double*, bool);
template void norm_backward(const RowNorm<float>&, Index, const float*, const float*, const float*,
                            const float*, const float*, float*, float, float*, float*, float*);
template void norm_backward(const RowNorm<double>&, Index, const double*, const double*, const double*,
                            const double*, const double*, double*, double, double*, double*, double*);

}  // namespace normscope
