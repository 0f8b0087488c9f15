#include "telemetry/site_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "kernels/bf16.h"
#include "kernels/pointwise.h"

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

SiteStatistics::SiteStatistics(const ModelShape& shape)
    : shape_(shape),
      heads_(static_cast<std::size_t>(shape.n_layer * shape.n_head)),
      qkv_squares_(static_cast<std::size_t>(3 * shape.d_model)) {
  Index columns = 0;
  for (const Place place : places_of(shape.n_layer)) {
    const Index width = place.site == Site::ffn_hidden ? shape.d_ff
                        : place.site == Site::logits   ? shape.vocab
                                                       : shape.d_model;
    entries_.push_back({place, columns, width, {}, {}, 0, 0, 0});
    columns += width;
  }
  column_squares_.resize(static_cast<std::size_t>(columns));
}

void SiteStatistics::clear() {
  for (Entry& e : entries_) e = {e.place, e.first_column, e.width, {}, {}, 0, 0, 0};
  std::ranges::fill(heads_, Head{});
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

void SiteStatistics::Head::operator+=(const Head& other) {
  weights += other.weights;
  for (std::size_t i = 0; i < std::size(squares); ++i) squares[i] += other.squares[i];
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
  Entry& entry = at(place);
  require(x.cols == entry.width, "telemetry", name_of(place.site), " is ", x.cols, " wide; expected ",
          entry.width);
  const TensorStats stats = column_stats(x, column_squares_.data() + entry.first_column);
  entry.value += stats;
  look_for_nonfinite(place, stats, false);

  const bool is_stream = place.site == Site::stream || place.site == Site::stream_mid;
  (is_stream ? last_stream_ : last_other_) = {x.value, stats.sum_squares};
  if (place.site != Site::stream) return;
  if (place.layer > 0) entry.cosines += sum_cosines(x.rows, x.cols, block_input_.value, x.value);
  block_input_ = x;
}

void SiteStatistics::on_gradient(Place place, const Matrix<float>& x) {
  const TensorStats stats = tensor_stats(x);
  at(place).gradient += stats;
  look_for_nonfinite(place, stats, true);
}

double SiteStatistics::squares_of(const Matrix<float>& x) const {
  for (const Squares& known : {last_stream_, last_other_}) {
    if (known.data == x.value) return known.sum;
  }
  return sum_squares(x.size(), x.value);
}

void SiteStatistics::on_sum(Place branch_end, float alpha, const Matrix<float>& x,
                            const Matrix<float>& branch) {
  Entry& entry = at(branch_end);
  entry.branch_squares += squares_of(branch);
  entry.stream_squares += double{alpha} * double{alpha} * squares_of(x);
}

void SiteStatistics::on_heads(int layer, const Matrix<float>& qkv, std::span<const HeadStats> heads) {
  const Index H = shape_.n_head, C = shape_.d_model, D = C / H;
  Head* of_layer = heads_.data() + (layer - 1) * H;
  for (std::size_t i = 0; i < heads.size(); ++i) of_layer[static_cast<Index>(i) % H].weights += heads[i];
  std::ranges::fill(qkv_squares_, 0.0);
  column_stats(qkv, qkv_squares_.data());
  for (Index i = 0; i < 3 * C; ++i)
    of_layer[i % C / D].squares[i / C] += qkv_squares_[static_cast<std::size_t>(i)];
}

namespace {

template <class T>
char* put_bytes(const std::vector<T>& from, char* to) {
  std::memcpy(to, from.data(), from.size() * sizeof(T));
  return to + from.size() * sizeof(T);
}
template <class T>
const char* add_bytes_to(std::vector<T>& sums, const char* from) {
  for (T& sum : sums) {
    T heard;
    std::memcpy(&heard, from, sizeof heard);
    from += sizeof heard;
    sum += heard;
  }
  return from;
}

}  // namespace

void SiteStatistics::to_bytes(char* bytes) const {
  bytes = put_bytes(column_squares_, put_bytes(heads_, put_bytes(entries_, bytes)));
  std::memcpy(bytes, &first_nonfinite_, sizeof first_nonfinite_);
}

void SiteStatistics::add_bytes(const char* bytes) {
  bytes = add_bytes_to(column_squares_, add_bytes_to(heads_, add_bytes_to(entries_, bytes)));
  if (!first_nonfinite_) std::memcpy(&first_nonfinite_, bytes, sizeof first_nonfinite_);
}

std::vector<SiteRow> SiteStatistics::rows(Index batches) const {
  std::vector<SiteRow> rows;
  rows.reserve(entries_.size());
  for (const Entry& e : entries_) {
    const auto& [place, value, gradient] = std::tie(e.place, e.value, e.gradient);
    const double n = static_cast<double>(value.count), gn = static_cast<double>(gradient.count),
                 width = static_cast<double>(e.width);
    double squares = 0, fourth = 0, dead = 0;
    for (const double column : std::span(column_squares_).subspan(e.first_column, e.width)) {
      squares += column;
      fourth += column * column;
      dead += column == 0;
    }
    SiteRow row{place,
                value.sum / n,
                std::sqrt(value.sum_squares / n),
                value.abs_max,
                value.nonfinite,
                std::sqrt(gradient.sum_squares / gn),
                gradient.abs_max,
                std::sqrt(gradient.sum_squares / static_cast<double>(batches)),
                gradient.nonfinite,
                width * fourth / (squares * squares),
                {},
                {},
                {}};
    if (place.site == Site::ffn_hidden) row.dead = dead / width;
    if (place.site == Site::stream && place.layer > 0) row.cos_in = e.cosines * width / n;
    if (e.stream_squares != 0) row.branch_share = std::sqrt(e.branch_squares / e.stream_squares);
    rows.push_back(row);
  }
  return rows;
}

std::vector<HeadRow> SiteStatistics::head_rows() const {
  std::vector<HeadRow> rows;
  rows.reserve(heads_.size());
  const Index H = shape_.n_head, D = shape_.d_model / H;
  for (const auto& [weights, squares] : heads_) {
    const Index number = std::ssize(rows);
    const double queries = static_cast<double>(weights.queries);
    const auto rms = [&](double sum) { return std::sqrt(sum / (queries * static_cast<double>(D))); };
    rows.push_back({number / H + 1, number % H + 1, weights.max_logit, weights.entropy / queries,
                    weights.first_share / queries, rms(squares[0]), rms(squares[1]), rms(squares[2])});
  }
  return rows;
}

}  // namespace normscope
