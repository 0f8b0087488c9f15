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

// A view of a matrix in memory: (rows, cols), row-major, rows `ld` elements apart; null data: no matrix.
template <class Real>
struct Matrix {
  Real* data = nullptr;
  Index rows = 0, cols = 0, ld = 0;
  bool transposed = false;  // operands of GEMM only: element (i, j) is at [j*ld + i]

  Matrix() = default;
  Matrix(Real* memory, Index n_rows, Index n_cols, Index stride)
      : data(memory), rows(n_rows), cols(n_cols), ld(stride) {}
  Matrix(Real* memory, Index n_rows, Index n_cols) : Matrix(memory, n_rows, n_cols, n_cols) {}

  Index size() const { return rows * cols; }
  explicit operator bool() const { return data != nullptr; }

  // The part of n_rows by n_cols at (row, col).
  Matrix part(Index row, Index col, Index n_rows, Index n_cols) const {
    Matrix view = *this;
    if (data != nullptr) view.data += transposed ? col * ld + row : row * ld + col;
    view.rows = n_rows;
    view.cols = n_cols;
    return view;
  }

  Matrix t() const {
    Matrix other = *this;
    other.rows = cols;
    other.cols = rows;
    other.transposed = !transposed;
    return other;
  }
};

// relu: max(0, x). relu2: its square (So et al. 2021, arXiv 2109.08668). gelu: x Φ(x), Φ the normal
// distribution function (Hendrycks & Gimpel 2016), by erf. gelu_tanh: their tanh approximation, GPT-2's.
// silu: x/(1 + e^-x). swiglu: silu(gate) * x, of two inputs (Shazeer 2020), no function of one.
enum class Activation { relu, gelu, gelu_tanh, silu, swiglu, relu2 };

// native: our own kernels for float; doubles are multiplied by OpenBLAS. automatic: native,
// but openblas in passes with a cache of keys and values (sampling), where most products have one row and
// packing B takes longer than they do.
enum class GemmProvider { automatic, openblas, native, reference };

// bf16: the operands of the three products of every linear layer, the head included, and of attention's
// products are rounded to bf16, to nearest, ties to even. The instruction of AVX512-BF16 takes subnormal
// numbers as zero. Sums are float32, and so is all that is stored. Doubles are never rounded.
enum class Precision { fp32, bf16 };

// The provider of a model's products and the precision of their operands.
struct GemmMode {
  GemmProvider provider;
  Precision precision;
  GemmMode(GemmProvider by = GemmProvider::automatic, Precision of_operands = Precision::fp32)
      : provider(by), precision(of_operands) {}

  // The mode of passes with a cache of keys and values: `automatic` is OpenBLAS there.
  GemmMode with_cache() const {
    return {provider == GemmProvider::automatic ? GemmProvider::openblas : provider, precision};
  }
};

}  // namespace normscope
