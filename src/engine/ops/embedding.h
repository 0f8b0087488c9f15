// The embedding of tokens and positions.
//
//   shapes      tokens N, E (V, C), P (positions, C), learned or constant, or absent -> x (N, C)
//   forward     x[n] = E[token n] + P[first_position + n mod T]
//   backward    dE[token] = sum of dx over its rows,  dP[position] = sum of dx over its rows
//   saved       nothing
//   source      torch.nn.Embedding
//
// The backward is cut by columns, 64 for a thread: it adds all rows, in order, for these features, so the sum
// has one order. With C = 64 one thread does it all.
#pragma once

#include <algorithm>
#include <span>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {

template <class Real>
Var<Real> embedding(Tape<Real>& tape, std::span<const std::int32_t> tokens, Index context,
                    Var<Real> token_table, Var<Real> position_table = {}, Index first_position = 0) {
  const Index rows = std::ssize(tokens), cols = token_table.cols;
  const typename Tape<Real>::Op op(tape, "embedding", rows, cols);
  const Index used_positions = first_position + std::min(rows, context);
  require(!position_table || (position_table.cols == cols && position_table.rows >= used_positions),
          "embedding", "positions are (", position_table.rows, ", ", position_table.cols, "); needed (",
          used_positions, ", ", cols, ")");
  require(std::ranges::all_of(tokens, [&](std::int32_t id) { return id >= 0 && id < token_table.rows; }),
          "embedding", "a token is not below ", token_table.rows, ", the size of the vocabulary");
  const std::int32_t* ids = tokens.data();
  const auto position = [=](Index row) { return first_position + row % context; };

  constexpr Index rows_per_block = 64, cols_per_block = 64;
  const Var<Real> x = tape.create(rows, cols);
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* token = token_table.data + ids[row] * cols;
      const Real* at_position = position_table ? position_table.data + position(row) * cols : nullptr;
      for (Index c = 0; c < cols; ++c) {
        x.data[row * cols + c] = at_position == nullptr ? token[c] : token[c] + at_position[c];
      }
    }
  });

  tape.record(x, [=](Tape<Real>& t) {
    const Real* dx = t.gradient(x).data;
    Real *dtoken = t.add_to(token_table), *dposition = t.add_to(position_table);
    parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
      const auto add = [&](Real* table, Index entry, Index row) {
        if (table == nullptr) return;
        kernels<Real>().axpby(end - begin, 1, dx + row * cols + begin, 1, table + entry * cols + begin);
      };
      for (Index row = 0; row < rows; ++row) {
        add(dtoken, ids[row], row);
        add(dposition, position(row), row);
      }
    });
  });
  return x;
}

}  // namespace normscope
