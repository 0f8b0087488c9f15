// The legend: one set of letters for the whole program.
//
//   B  sequences in a batch          T  characters of context        N = B*T, rows of every activation
//   C  width of the stream (d_model) H  attention heads              D = C/H, width of a head
//   F  width of the FFN (d_ff)       V  vocabulary                   L  blocks
//   d before a name is the gradient of the loss with respect to it: dx has the shape of x.
//
// Matrices are row-major; weights are (out, in), as in PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace normscope {

using Index = std::int64_t;  // sizes, rows, offsets: signed, so that differences are safe

}  // namespace normscope
