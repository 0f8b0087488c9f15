// The JSON header of a safetensors file, to text and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace normscope {

constexpr Index largest_header = 100'000'000;  // bytes; the cap of the reference implementation too

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorInfo> tensors;
};

// Trusts nothing: JSON of just the right shape, no name twice, dtypes known, sizes that fit their offsets,
// tensors that fill `data_size` bytes without gap or overlap. Tensors come back in the order of their data.
SafetensorsHeader parse_header(std::string_view header, Index data_size, const std::string& path);

// Padded with spaces so that the data begins at a multiple of 8.
std::string header_text(const SafetensorsHeader& header);

// The place of the checksum's 16 digits in the header's text; npos if `digits` do not stand there as written.
std::size_t find_checksum(std::string_view header, std::string_view digits);

}  // namespace normscope
