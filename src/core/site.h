// The measured places of the model: rows in layers.csv, tensors in an exchange file.
#pragma once

#include <array>
#include <compare>

namespace normscope {

// In the order of the model: the seven of a block, then the head's.
enum class Site { attn_in, attn_out, stream_mid, ffn_in, ffn_hidden, ffn_out, stream, final, logits };

constexpr std::array<const char*, 9> site_names = {
    "attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out", "stream", "final", "logits"};

constexpr const char* name_of(Site site) { return site_names[static_cast<unsigned>(site)]; }

// A site of a layer. Layer 0 is the embedding output, 1..L are the blocks, L+1 is the head.
struct Place {
  int layer;
  Site site;
  auto operator<=>(const Place&) const = default;
};

}  // namespace normscope
