#include "telemetry/site_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bf16.h"

namespace normscope {
namespace {

constexpr Site block_sites[] = {Site::attn_in,    Site::attn_out, Site::stream_mid, Site::ffn_in,
                                Site::ffn_hidden, Site::ffn_out,  Site::stream};

}  // namespace

std::vector<Place> places_of(Index n_layer) {
  const int last = static_cast<int>(n_layer) + 1;
  std::vector<Place> places = {{0, Site::stream}};
  for (int layer = 1; layer < last; ++layer) {
    for (const Site site : block_sites) places.push_back({layer, site});
  }
  places.push_back({last, Site::final});
  places.push_back({last, Site::logits});
  return places;
}

SiteStatistics::SiteStatistics(Index n_layer) {
  for (const Place place : places_of(n_layer)) entries_.push_back({place, {}, {}});
}

void SiteStatistics::clear() {
  for (Entry& e : entries_) e.value = e.gradient = TensorStats{};
  first_nonfinite_.reset();
}

void SiteStatistics::add(Place place, const Matrix<float>& x, TensorStats Entry::*part) {
  const auto entry = std::ranges::find(entries_, place, &Entry::place);
  require(entry != entries_.end(), "telemetry", "a tap at a site that the log does not know: layer ",
          place.layer, ", ", name_of(place.site));
  const TensorStats stats = tensor_stats(x);
  (*entry).*part += stats;
  if (stats.nonfinite > 0 && !first_nonfinite_) {
    first_nonfinite_ = Nonfinite{place, part == &Entry::gradient};
  }
}

void SiteStatistics::to_bytes(char* bytes) const {
  std::memcpy(bytes, entries_.data(), entries_.size() * sizeof(Entry));
  std::memcpy(bytes + entries_.size() * sizeof(Entry), &first_nonfinite_, sizeof first_nonfinite_);
}

void SiteStatistics::add_bytes(const char* bytes) {
  for (Entry& e : entries_) {
    Entry heard;
    std::memcpy(&heard, bytes, sizeof heard);
    bytes += sizeof heard;
    e.value += heard.value;
    e.gradient += heard.gradient;
  }
  if (!first_nonfinite_) std::memcpy(&first_nonfinite_, bytes, sizeof first_nonfinite_);
}

std::vector<SiteRow> SiteStatistics::rows(Index batches) const {
  std::vector<SiteRow> rows;
  rows.reserve(entries_.size());
  for (const auto& [place, value, gradient] : entries_) {
    const double n = static_cast<double>(value.count), gn = static_cast<double>(gradient.count);
    rows.push_back({place, value.sum / n, std::sqrt(value.sum_squares / n), value.abs_max, value.nonfinite,
                    std::sqrt(gradient.sum_squares / gn), gradient.abs_max,
                    std::sqrt(gradient.sum_squares / static_cast<double>(batches)), gradient.nonfinite});
  }
  return rows;
}

}  // namespace normscope
