// Points of measurement in the model: its sites and its attention heads.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <limits>

#include "core/types.h"

namespace normscope {

// The rows of layers.csv and the tensors of an exchange file, in the order of the model: the seven of a
// block, then the head's.
enum class Site { attn_in, attn_out, stream_mid, ffn_in, ffn_hidden, ffn_out, stream, final, logits };

constexpr std::array<const char*, 9> site_names = {
    "attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out", "stream", "final", "logits"};

constexpr const char* name_of(Site site) { return site_names[static_cast<unsigned>(site)]; }

// A site and its layer. Layer 0 is the embedding output, 1..L are the blocks, L+1 is the head.
struct SiteId {
  int layer;
  Site site;
  auto operator<=>(const SiteId&) const = default;
};

// Statistics of a head's softmax as sums over queries, for the rows of heads.csv.
struct HeadStats {
  Index queries = 0;
  double max_logit = -std::numeric_limits<double>::infinity();  // largest q·k/sqrt(D) that is not masked
  double entropy = 0;      // sum of the entropy of each query's weights before dropout (nats)
  double first_share = 0;  // sum of each query's weight before dropout on the first key

  void operator+=(const HeadStats& other) {
    queries += other.queries;
    max_logit = std::max(max_logit, other.max_logit);
    entropy += other.entropy;
    first_share += other.first_share;
  }
};

}  // namespace normscope
