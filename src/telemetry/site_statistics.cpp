#include "telemetry/site_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/parallel.h"

namespace normscope {
namespace {

constexpr Site block_sites[] = {Site::attn_in,    Site::attn_out, Site::stream_mid, Site::ffn_in,
                                Site::ffn_hidden, Site::ffn_out,  Site::stream};

// Tensors are measured together until each thread has so many numbers to look at, a part of its L2 cache:
// threads take longer to begin a loop than to look at one small tensor.
constexpr Index numbers_per_thread = 64 * 1024;

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

SiteStatistics::SiteStatistics(const ModelShape& shape)
    : shape_(shape), heads_(static_cast<std::size_t>(shape.n_layer * shape.n_head)) {
  Index columns = 0;
  for (const Place place : places_of(shape.n_layer)) {
    const Index width = place.site == Site::ffn_hidden ? shape.d_ff
                        : place.site == Site::logits   ? shape.vocab
                                                       : shape.d_model;
    entries_.push_back({place, columns, width});
    columns += width;
  }
  column_squares_.resize(static_cast<std::size_t>(columns + shape.n_layer * 3 * shape.d_model));
}

void SiteStatistics::clear() {
  for (Entry& e : entries_) e = {e.place, e.first_column, e.width};
  std::ranges::fill(heads_, HeadStats{});
  std::ranges::fill(column_squares_, 0.0);
  first_nonfinite_.reset();
}

void SiteStatistics::Entry::operator+=(const Entry& other) {
  value += other.value;
  gradient += other.gradient;
  cosines += other.cosines;
  branch_squares += other.branch_squares;
  stream_squares += other.stream_squares;
}

SiteStatistics::Entry& SiteStatistics::at(Place place) {
  const auto entry = std::ranges::find(entries_, place, &Entry::place);
  require(entry != entries_.end(), "telemetry", "a tap at a site that the log does not know: layer ",
          place.layer, ", ", name_of(place.site));
  return *entry;
}

void SiteStatistics::look_for_nonfinite(Place place, const TensorStats& stats, bool in_gradient) {
  if (stats.nonfinite > 0 && !first_nonfinite_) first_nonfinite_ = Nonfinite{place, in_gradient};
}

void SiteStatistics::on_value(Place place, const Matrix<float>& x) {
  const Entry& entry = at(place);
  require(x.cols == entry.width, "telemetry", name_of(place.site), " is ", x.cols, " wide; expected ",
          entry.width);
  const bool ends_block = place.site == Site::stream && place.layer > 0;
  pending_.push_back(
      {x, column_squares_.data() + entry.first_column, ends_block ? block_input_.data : nullptr});
  unmeasured_ += x.size();
  const bool is_last = place.site == Site::stream || place.site == Site::logits;
  if (is_last || unmeasured_ >= numbers_per_thread * thread_count()) measure();
  if (place.site == Site::stream) block_input_ = x;
  if (is_last) end_block();
}

void SiteStatistics::on_gradient(Place place, const Matrix<float>& x) {
  const TensorStats stats = tensor_stats(x.size(), x.data);
  at(place).gradient += stats;
  look_for_nonfinite(place, stats, true);
}

void SiteStatistics::on_sum(Place branch_end, float alpha, const Matrix<float>& x,
                            const Matrix<float>& branch) {
  pending_sums_.push_back({branch_end, alpha, x, branch});
}

void SiteStatistics::on_heads(int layer, const Matrix<float>& qkv, std::span<const HeadStats> heads) {
  const Index H = shape_.n_head;
  for (std::size_t i = 0; i < heads.size(); ++i)
    heads_[(layer - 1) * H + static_cast<Index>(i) % H] += heads[i];
  pending_.push_back({qkv, column_squares_.data() + qkv_column(layer)});
  unmeasured_ += qkv.size();
}

void SiteStatistics::measure() {
  column_stats(std::span(pending_).subspan(measured_));
  measured_ = pending_.size();
  unmeasured_ = 0;
}

void SiteStatistics::end_block() {
  for (const ColumnStats<float>& tensor : pending_) {
    const Index column = tensor.squares - column_squares_.data();
    const auto entry = std::ranges::find(entries_, column, &Entry::first_column);
    if (entry == entries_.end()) continue;  // queries, keys and values
    entry->value += tensor.stats;
    entry->cosines += tensor.cosines;
    look_for_nonfinite(entry->place, tensor.stats, false);
  }
  const auto squares_of = [&](const Matrix<float>& x) {
    if (x.data == last_stream_) return last_stream_squares_;
    for (const ColumnStats<float>& tensor : pending_)
      if (tensor.x.data == x.data) return tensor.stats.sum_squares;
    return sum_squares(x.size(), x.data);
  };
  for (const Sum& sum : pending_sums_) {
    Entry& entry = at(sum.branch_end);
    entry.branch_squares += squares_of(sum.branch);
    entry.stream_squares += double{sum.alpha} * double{sum.alpha} * squares_of(sum.x);
  }
  last_stream_ = pending_.back().x.data;
  last_stream_squares_ = pending_.back().stats.sum_squares;
  pending_.clear();
  pending_sums_.clear();
  measured_ = 0;
}

void SiteStatistics::to_bytes(char* bytes) const {
  const auto put = [&](const auto* from, std::size_t count) {
    std::memcpy(bytes, from, count * sizeof *from);
    bytes += count * sizeof *from;
  };
  put(entries_.data(), entries_.size());
  put(heads_.data(), heads_.size());
  put(column_squares_.data(), column_squares_.size());
  put(&first_nonfinite_, 1);
}

void SiteStatistics::add_bytes(const char* bytes) {
  const auto take = [&](auto heard) {
    std::memcpy(&heard, bytes, sizeof heard);
    bytes += sizeof heard;
    return heard;
  };
  for (Entry& sum : entries_) sum += take(sum);
  for (HeadStats& sum : heads_) sum += take(sum);
  for (double& sum : column_squares_) sum += take(sum);
  if (const auto first = take(first_nonfinite_); !first_nonfinite_) first_nonfinite_ = first;
}

std::vector<SiteRow> SiteStatistics::rows(Index batches) const {
  std::vector<SiteRow> rows;
  rows.reserve(entries_.size());
  for (const Entry& e : entries_) {
    const TensorStats &value = e.value, &gradient = e.gradient;
    const double n = static_cast<double>(value.count), gn = static_cast<double>(gradient.count),
                 width = static_cast<double>(e.width);
    double squares = 0, fourth = 0, dead = 0;
    for (const double column : std::span(column_squares_).subspan(e.first_column, e.width)) {
      squares += column;
      fourth += column * column;
      dead += column == 0;
    }
    SiteRow row{e.place,
                value.sum / n,
                std::sqrt(value.sum_squares / n),
                value.abs_max,
                value.nonfinite,
                std::sqrt(gradient.sum_squares / gn),
                gradient.abs_max,
                std::sqrt(gradient.sum_squares / static_cast<double>(batches)),
                gradient.nonfinite,
                width * fourth / (squares * squares)};
    if (e.place.site == Site::ffn_hidden) row.dead = dead / width;
    if (e.place.site == Site::stream && e.place.layer > 0) row.cos_in = e.cosines * width / n;
    if (e.stream_squares != 0) row.branch_share = std::sqrt(e.branch_squares / e.stream_squares);
    rows.push_back(row);
  }
  return rows;
}

std::vector<HeadRow> SiteStatistics::head_rows() const {
  std::vector<HeadRow> rows;
  rows.reserve(heads_.size());
  const Index H = shape_.n_head, C = shape_.d_model, D = C / H;
  for (const HeadStats& stats : heads_) {
    const Index layer = std::ssize(rows) / H + 1, head = std::ssize(rows) % H;
    const double queries = static_cast<double>(stats.queries);
    const double* squares = column_squares_.data() + qkv_column(layer) + head * D;
    const auto rms = [&](Index begin) {
      const double sum = std::accumulate(squares + begin, squares + begin + D, 0.0);
      return std::sqrt(sum / (queries * static_cast<double>(D)));
    };
    const double max_logit =
        std::isnan(stats.entropy) ? stats.entropy : stats.max_logit;  // of logits that are NaN
    rows.push_back({layer, head + 1, max_logit, stats.entropy / queries, stats.first_share / queries, rms(0),
                    rms(C), rms(2 * C)});
  }
  return rows;
}

}  // namespace normscope
