// Hashes, and random numbers as a pure function of (seed, purpose, position): there is no state to save.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <string>
#include <string_view>

#include "core/portable_math.h"
#include "core/types.h"

namespace normscope {

// --- FNV-1a, 64 bits (Fowler, Noll & Vo): checksums, the trajectory hash, keys of random streams ---

constexpr std::uint64_t fnv1a_basis = 0xCBF29CE484222325ULL;

// Continue `state` over `size` bytes.
inline std::uint64_t fnv1a(const void* bytes, std::size_t size, std::uint64_t state) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < size; ++i) state = (state ^ p[i]) * 0x100000001B3ULL;
  return state;
}

inline std::uint64_t fnv1a(std::string_view bytes, std::uint64_t state = fnv1a_basis) {
  return fnv1a(bytes.data(), bytes.size(), state);
}

// The value as 16 hex digits.
inline std::string hex(std::uint64_t value) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return digits;
}

// --- Random numbers ---

__extension__ typedef unsigned __int128 uint128;  // 64 x 64 -> 128 bits

// SplitMix64 (Steele, Lea & Flood 2014) read as a counter-based generator: draw i of a stream is
// mix(key + (i+1)*golden), the i-th output of a SplitMix64 generator whose state is `key`.
class RandomStream {
 public:
  // The stream of a named purpose, such as a parameter's name.
  RandomStream(std::uint64_t seed, std::string_view purpose) : key_(mix(mix(seed) ^ fnv1a(purpose))) {}

  // The stream of one item of this purpose: a step, a sequence, a site.
  RandomStream at(std::uint64_t item) const { return RandomStream(mix(key_ ^ mix(item + golden))); }

  // Draw i, all 64 bits random.
  std::uint64_t bits(std::uint64_t i) const { return mix(key_ + (i + 1) * golden); }

  // Draw i, uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }

  // Draw i, a standard normal (Box & Muller 1958; draws 2i and 2i+1 of the stream, the cosine half).
  double normal(std::uint64_t i) const {
    const double radius = std::sqrt(-2.0 * portable::log(1.0 - uniform(2 * i)));
    return radius * portable::cos(2.0 * std::numbers::pi * uniform(2 * i + 1));
  }

  // Draw i, a whole number in [0, n), n >= 1: the high half of a 128-bit product (bias below n/2^64).
  Index below(std::uint64_t i, Index n) const {
    return static_cast<Index>((static_cast<uint128>(bits(i)) * static_cast<std::uint64_t>(n)) >> 64);
  }

 private:
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
};

}  // namespace normscope
