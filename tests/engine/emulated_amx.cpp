// The emulation calls no inline function of a library, as it is compiled for AVX-512: kernels/simd/vector.h.
#include "emulated_amx.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace normscope::testing {
namespace {

constexpr Index max_rows = 16, max_bytes = 64;
const char* first_fault = nullptr;
int configured_threads = 0;
const MemoryRange* allowed = nullptr;
Index n_allowed = 0;

void require_that(bool holds, const char* fault) {
  if (!holds && first_fault == nullptr) __atomic_store_n(&first_fault, fault, __ATOMIC_SEQ_CST);
}

struct Tile {
  Index rows = 0, bytes = 0;  // 0: not configured
  alignas(64) unsigned char data[max_rows][max_bytes] = {};

  float& sum(Index row, Index col) { return reinterpret_cast<float*>(data[row])[col]; }
  // Number i of a row of bf16.
  float bf16(Index row, Index i) const {
    const unsigned char* bytes_of_number = data[row] + 2 * i;
    const std::uint32_t bits = std::uint32_t(bytes_of_number[0]) << 16 | std::uint32_t(bytes_of_number[1])
                                                                             << 24;
    float number;
    __builtin_memcpy(&number, &bits, sizeof number);
    return number;
  }
};

class Tiles {
 public:
  void configure(const void* operand) {
    const unsigned char* bytes = static_cast<const unsigned char*>(operand);
    require_that(bytes[0] == 1, "another palette than 1");
    for (int i = 1; i < 16; ++i) require_that(bytes[i] == 0, "a start row, or reserved bytes that are not 0");
    for (int i = 0; i < 16; ++i) {
      const Index row_bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i], rows = bytes[48 + i];
      require_that(i < 8 || (row_bytes == 0 && rows == 0), "a shape of a tile that does not exist");
      require_that(row_bytes <= max_bytes && rows <= max_rows && (row_bytes == 0) == (rows == 0),
                   "a shape that no tile can have");
      if (i >= 8) continue;
      tiles_[i] = {};
      tiles_[i].rows = rows;
      tiles_[i].bytes = row_bytes;
    }
    if (!is_configured_) __atomic_add_fetch(&configured_threads, 1, __ATOMIC_SEQ_CST);
    is_configured_ = true;
  }

  void release() {
    if (is_configured_) __atomic_sub_fetch(&configured_threads, 1, __ATOMIC_SEQ_CST);
    is_configured_ = false;
    for (Tile& tile : tiles_) tile = {};
  }

  void zero(int number) {
    Tile& tile = used(number);
    __builtin_memset(tile.data, 0, sizeof tile.data);
  }

  void load(int number, const void* base, Index stride) {
    zero(number);
    Tile& tile = used(number);
    for (Index row = 0; row < tile.rows; ++row) {
      const unsigned char* from = static_cast<const unsigned char*>(base) + row * stride;
      if (may_access(from, tile.bytes)) __builtin_memcpy(tile.data[row], from, tile.bytes);
    }
  }

  void store(int number, void* base, Index stride) {
    const Tile& tile = used(number);
    for (Index row = 0; row < tile.rows; ++row) {
      unsigned char* to = static_cast<unsigned char*>(base) + row * stride;
      if (may_access(to, tile.bytes)) __builtin_memcpy(to, tile.data[row], tile.bytes);
    }
  }

  void multiply_add(int sums, int a, int b) {
    Tile &c = used(sums), &x = used(a), &y = used(b);
    require_that(sums != a && sums != b && a != b, "a product of a tile with itself");
    require_that(c.rows == x.rows && c.bytes == y.bytes && x.bytes == 4 * y.rows,
                 "a product of other shapes");
    for (Index row = 0; row < c.rows; ++row) {
      for (Index pair = 0; pair < y.rows; ++pair) {
        for (Index col = 0; col < c.bytes / 4; ++col) {
          c.sum(row, col) += x.bf16(row, 2 * pair) * y.bf16(pair, 2 * col);
          c.sum(row, col) += x.bf16(row, 2 * pair + 1) * y.bf16(pair, 2 * col + 1);
        }
      }
    }
  }

 private:
  Tile& used(int number) {
    require_that(is_configured_ && tiles_[number].rows > 0, "a tile that is not configured");
    return tiles_[number];
  }

  bool may_access(const unsigned char* begin, Index bytes) {
    constexpr Index stack_in_use = 64 * 1024;
    const unsigned char* stack = static_cast<const unsigned char*>(__builtin_frame_address(0));
    bool may = n_allowed == 0 || (begin >= stack && begin + bytes <= stack + stack_in_use);
    for (Index i = 0; i < n_allowed; ++i) may |= begin >= allowed[i].begin && begin + bytes <= allowed[i].end;
    require_that(may, "memory outside the operands");
    return may;
  }

  bool is_configured_ = false;
  Tile tiles_[8];
};

thread_local Tiles tiles;

}  // namespace
}  // namespace normscope::testing

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes) testing::tiles.configure(shapes)
#define _tile_release() testing::tiles.release()
#define _tile_loadd(tile, base, stride) testing::tiles.load(tile, base, stride)
#define _tile_stored(tile, base, stride) testing::tiles.store(tile, base, stride)
#define _tile_zero(tile) testing::tiles.zero(tile)
#define _tile_dpbf16ps(sums, a, b) testing::tiles.multiply_add(sums, a, b)

#define NORMSCOPE_NAMESPACE isa_emulated_amx
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/gemm/amx.h"

namespace normscope::testing {

const GemmKernel<Bf16Pair>* emulated_amx() { return &isa_emulated_amx::bf16_kernel; }
const char* fault_of_tiles() {
  if (const char* fault = first_fault) {
    first_fault = nullptr;
    return fault;
  }
  return configured_threads != 0 ? "tiles that are not released" : "";
}
void limit_tiles_to(const MemoryRange* ranges, Index count) {
  allowed = ranges;
  n_allowed = count;
}

}  // namespace normscope::testing
#else
namespace normscope::testing {
const GemmKernel<Bf16Pair>* emulated_amx() { return nullptr; }
const char* fault_of_tiles() { return ""; }
void limit_tiles_to(const MemoryRange*, Index) {}
}  // namespace normscope::testing
#endif
