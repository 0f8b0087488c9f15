#include "dist/shares.h"

#include "kernels/reduce.h"

namespace normscope {

Shares::Shares(const ParameterLayout& layout, Communicator& ranks) : layout_(layout), ranks_(ranks) {
  for (int i = 0; i < static_cast<int>(layout.list().size()); ++i) {
    const Parameter& p = layout[i];
    for (Index begin = 0; begin < p.size; begin += elements_per_block)
      pieces_.push_back({i, p.offset + begin, std::min(elements_per_block, p.size - begin)});
  }
  std::size_t piece = 0;
  for (const Index wanted : even_cut(layout.block_size(), ranks.size())) {
    while (piece < pieces_.size() && pieces_[piece].begin < wanted) ++piece;
    first_.push_back(piece);
    cut_.push_back((piece < pieces_.size() ? pieces_[piece].begin : layout.block_size()) / floats_per_line);
  }
}

}  // namespace normscope
