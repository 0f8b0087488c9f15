// x[n] = E[token_n] + P[position_n];  dE[token] = sum of dx over its rows,  dP[position] likewise.
// The backward is cut by columns: each thread adds all rows, in order, for some features, so the sum has one
// order.
#include "core/parallel.h"
#include "kernels/simd.h"
#include "ops/ops.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 64;
constexpr Index cols_per_block = 64;

}  // namespace

template <class Real>
Var<Real> embedding(Tape<Real>& tape, std::span<const std::int32_t> tokens, Index context,
                    Var<Real> token_table, Var<Real> position_table, Index first_position) {
  const Index rows = static_cast<Index>(tokens.size()), cols = token_table.cols;
  const typename Tape<Real>::Op op(tape, "embedding", rows, cols);
  const Index used_positions = first_position + std::min(rows, context);
  require(!position_table || (position_table.cols == cols && position_table.rows >= used_positions),
          "embedding", "positions are (", position_table.rows, ", ", position_table.cols, "); needed (",
          used_positions, ", ", cols, ")");
  const std::int32_t* ids = tokens.data();
  const auto position = [=](Index row) { return first_position + row % context; };

  Var<Real> x = tape.create(rows, cols);
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* token = token_table.value + ids[row] * cols;
      const Real* place = position_table ? position_table.value + position(row) * cols : nullptr;
      for (Index c = 0; c < cols; ++c)
        x.value[row * cols + c] = place == nullptr ? token[c] : token[c] + place[c];
    }
  });

  tape.record(x, [=](Tape<Real>& t) {
    const Real* dx = t.gradient(x);
    Real *dtoken = add_if_wanted(t, token_table), *dplace = add_if_wanted(t, position_table);
    parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
      const auto add_to = [&](Real* table, Index entry, const Real* gradient) {
        if (table == nullptr) return;
        kernels<Real>().axpby(end - begin, Real(1), gradient, Real(1), table + entry * cols + begin);
      };
      for (Index row = 0; row < rows; ++row) {
        add_to(dtoken, ids[row], dx + row * cols + begin);
        add_to(dplace, position(row), dx + row * cols + begin);
      }
    });
  });
  return x;
}

template Var<float> embedding(Tape<float>&, std::span<const std::int32_t>, Index, Var<float>, Var<float>,
                              Index);
template Var<double> embedding(Tape<double>&, std::span<const std::int32_t>, Index, Var<double>, Var<double>,
                               Index);

}  // namespace normscope
