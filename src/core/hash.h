// FNV-1a, 64 bits (Fowler, Noll & Vo): checksums of files, the trajectory hash, keys of random streams.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace normscope {

constexpr std::uint64_t fnv1a_basis = 0xCBF29CE484222325ULL;

// Continues `state` over `size` bytes.
inline std::uint64_t fnv1a(const void* bytes, std::size_t size, std::uint64_t state) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < size; ++i) state = (state ^ p[i]) * 0x100000001B3ULL;
  return state;
}

inline std::uint64_t fnv1a(std::string_view bytes, std::uint64_t state = fnv1a_basis) {
  return fnv1a(bytes.data(), bytes.size(), state);
}

// 16 hex digits.
inline std::string hex(std::uint64_t value) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return digits;
}

}  // namespace normscope
