#include "telemetry/site_statistics.h"

#include <cmath>

namespace normscope {
namespace {

constexpr Site block_sites[] = {Site::attn_in,    Site::attn_out, Site::stream_mid, Site::ffn_in,
                                Site::ffn_hidden, Site::ffn_out,  Site::stream};
constexpr std::size_t sites_per_block = std::size(block_sites);

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

template <class Real>
SiteStatistics<Real>::SiteStatistics(Index n_layer) {
  for (const Place place : places_of(n_layer)) entries_.push_back({place, {}, {}});
}

template <class Real>
void SiteStatistics<Real>::clear() {
  for (Entry& e : entries_) e.value = e.gradient = TensorStats{};
  first_nonfinite_.reset();
}

template <class Real>
typename SiteStatistics<Real>::Entry& SiteStatistics<Real>::entry(Place place) {
  std::size_t index = 0;
  if (place.layer > 0) {
    index = 1 + static_cast<std::size_t>(place.layer - 1) * sites_per_block;
    while (index < entries_.size() && entries_[index].place != place) ++index;
  }
  require(index < entries_.size(), "telemetry", "a tap at a site that the log does not know: layer ",
          place.layer, ", ", name_of(place.site));
  return entries_[index];
}

template <class Real>
void SiteStatistics<Real>::note(const TensorStats& m, Place place, bool in_gradient) {
  if (m.nonfinite > 0 && !first_nonfinite_) first_nonfinite_ = Nonfinite{place, in_gradient};
}

template <class Real>
void SiteStatistics<Real>::on_value(Place place, const StoredMatrix<Real>& value) {
  const TensorStats m = tensor_stats(value);
  entry(place).value += m;
  note(m, place, false);
}

template <class Real>
void SiteStatistics<Real>::on_gradient(Place place, const StoredMatrix<Real>& gradient) {
  const TensorStats m = tensor_stats(gradient);
  entry(place).gradient += m;
  note(m, place, true);
}

template <class Real>
std::vector<SiteRow> SiteStatistics<Real>::rows(Index batches) const {
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

template class SiteStatistics<float>;
template class SiteStatistics<double>;

}  // namespace normscope
