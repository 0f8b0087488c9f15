// Rounding to bf16.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "helpers.h"
#include "kernels/simd.h"

namespace normscope {
using namespace testing;

TEST_CASE("kernel: numbers rounded to bf16 are the nearest, in every instruction set and place of a row") {
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.is_supported) continue;
    CAPTURE(set.name);
    for (const Index cols : {1, 2, 7, 32, 75}) {
      const Index rows = 3, ldx = cols + 1, ld_out = cols + 3;
      const std::vector<float> x = normals<float>(rows * ldx, "x");
      std::vector<float> out(static_cast<std::size_t>(rows * ld_out), -7);
      set.kernels->round_to_bf16(rows, cols, x.data(), ldx, out.data(), ld_out);
      for (Index i = 0; i < rows * ld_out; ++i) {
        const Index row = i / ld_out, col = i % ld_out;
        CHECK(out[i] == (col < cols ? nearest_bf16(x[row * ldx + col]) : -7));
      }
    }
  }
}

TEST_CASE("kernel: bf16 rounds ties to even and keeps infinity and NaN, whatever the payload") {
  const auto rounded = [](std::uint32_t bits) {
    float x = std::bit_cast<float>(bits);
    simd_kernels().round_to_bf16(1, 1, &x, 1, &x, 1);
    return std::bit_cast<std::uint32_t>(x);
  };
  CHECK(rounded(0x3F808000U) == 0x3F800000U);
  CHECK(rounded(0x3F818000U) == 0x3F820000U);
  CHECK(rounded(0x3F808001U) == 0x3F810000U);
  CHECK(rounded(0x7F7FFFFFU) == 0x7F800000U);  // above the largest
  CHECK(rounded(0x7F800000U) == 0x7F800000U);
  CHECK(rounded(0xFF800000U) == 0xFF800000U);
  for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0x7FFF8001U}) {
    CAPTURE(bits);
    CHECK(std::isnan(std::bit_cast<float>(rounded(bits))));
  }
}

}  // namespace normscope
