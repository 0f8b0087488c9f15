#include "logs/site_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

FirstNonfinite nonfinite_at(SiteId id, bool in_gradient) {
  return {.layer = id.layer, .site = name_of(id.site), .param = "", .in_gradient = in_gradient};
}

// The mean cosine of two tokens of a sequence, summed over the sequences of x (sequences * T, C). With the
// tokens' unit vectors u it is (|sum of u|² - sum of |u|²) / (T (T - 1)). A token whose length is no normal
// number has u = 0.
double sum_of_cosines(const Matrix<float>& x, Index T) {
  const KernelTable<float>& table = kernels<float>();
  const Index sequences = x.rows / T, C = x.cols;
  double* of_sequence = thread_scratch<double, struct CosinesOfSequences>(sequences);
  parallel_for(sequences, [&](Index sequence) {
    float* sum = thread_scratch<float, struct SumOfUnitVectors>(C);
    double unit_vectors = 0;
    for (Index t = 0; t < T; ++t) {
      const float* token = x.data + (sequence * T + t) * C;
      const double length = std::sqrt(table.sum_squares(C, token));
      const bool has_direction = length >= std::numeric_limits<float>::min();
      if (has_direction) ++unit_vectors;
      table.axpby(C, has_direction ? static_cast<float>(1 / length) : 0.0f, token, t == 0 ? 0.0f : 1.0f, sum);
    }
    of_sequence[sequence] = (table.sum_squares(C, sum) - unit_vectors) / static_cast<double>(T * (T - 1));
  });
  double cosines = 0;
  for (Index sequence = 0; sequence < sequences; ++sequence) cosines += of_sequence[sequence];
  return cosines;
}

}  // namespace

void SiteSums::operator+=(const SiteSums& other) {
  value += other.value;
  gradient += other.gradient;
  branch_squares += other.branch_squares;
  stream_squares += other.stream_squares;
  cosines += other.cosines;
}

SiteStatistics::SiteStatistics(const ModelConfig& config)
    : n_head_(config.n_head),
      context_(config.context),
      width_(config.d_model),
      heads_(config.n_layer * config.n_head) {
  const int head_layer = static_cast<int>(config.n_layer) + 1;
  ids_.push_back({0, Site::stream});
  for (int layer = 1; layer < head_layer; ++layer) {
    for (int site = 0; site <= static_cast<int>(Site::stream); ++site)
      ids_.push_back({layer, static_cast<Site>(site)});
  }
  ids_.push_back({head_layer, Site::final});
  ids_.push_back({head_layer, Site::logits});
  sites_.resize(ids_.size());
}

void SiteStatistics::clear() {
  std::ranges::fill(sites_, SiteSums{});
  std::ranges::fill(heads_, HeadStats{});
}

SiteSums& SiteStatistics::at(SiteId id) {
  const auto found = std::ranges::lower_bound(ids_, id);
  require(found != ids_.end() && *found == id, "logs", "a tap at a site without a row: layer ", id.layer,
          ", ", name_of(id.site));
  return sites_[found - ids_.begin()];
}

void SiteStatistics::on_value(SiteId id, const Matrix<float>& x) {
  SiteSums& sums = at(id);
  sums.value += tensor_stats(x.size(), x.data);
  if (id.site == Site::stream && context_ > 1) sums.cosines += sum_of_cosines(x, context_);
}

void SiteStatistics::on_gradient(SiteId id, const Matrix<float>& x) {
  at(id).gradient += tensor_stats(x.size(), x.data);
}

void SiteStatistics::on_branch(SiteId output, float alpha, const Matrix<float>& branch) {
  const SiteId stream = output.site == Site::attn_out ? SiteId{output.layer - 1, Site::stream}
                                                      : SiteId{output.layer, Site::stream_mid};
  SiteSums& sums = at(output);
  // The branch is new in each pass, so its squares are added; at(stream) holds the sum of all passes already.
  sums.branch_squares += sum_squares(branch.size(), branch.data);
  sums.stream_squares = double{alpha} * double{alpha} * at(stream).value.sum_squares;
}

void SiteStatistics::on_heads(int layer, std::span<const HeadStats> heads) {
  for (std::size_t i = 0; i < heads.size(); ++i)
    heads_[(layer - 1) * n_head_ + static_cast<Index>(i) % n_head_] += heads[i];
}

void SiteStatistics::add(std::span<const SiteSums> sites, std::span<const HeadStats> heads) {
  for (std::size_t i = 0; i < sites.size(); ++i) sites_[i] += sites[i];
  for (std::size_t i = 0; i < heads.size(); ++i) heads_[i] += heads[i];
}

std::optional<FirstNonfinite> SiteStatistics::first_nonfinite() const {
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].value.nonfinite > 0) return nonfinite_at(ids_[i], false);
  }
  for (std::size_t i = sites_.size(); i-- > 0;) {
    if (sites_[i].gradient.nonfinite > 0) return nonfinite_at(ids_[i], true);
  }
  return std::nullopt;
}

std::vector<SiteRow> SiteStatistics::rows(Index batches) const {
  std::vector<SiteRow> rows;
  rows.reserve(sites_.size());
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const TensorStats &value = sites_[i].value, &gradient = sites_[i].gradient;
    const double n = static_cast<double>(value.count), gn = static_cast<double>(gradient.count);
    rows.push_back({.id = ids_[i],
                    .mean = value.sum / n,
                    .rms = std::sqrt(value.sum_squares / n),
                    .abs_max = value.abs_max,
                    .nonfinite = value.nonfinite,
                    .grad_rms = std::sqrt(gradient.sum_squares / gn),
                    .grad_abs_max = gradient.abs_max,
                    .grad_norm = std::sqrt(gradient.sum_squares / static_cast<double>(batches)),
                    .grad_nonfinite = gradient.nonfinite});
    if (ids_[i].site == Site::stream && context_ > 1) {
      const Index sequences = value.count / (context_ * width_);
      rows.back().token_cosine = sites_[i].cosines / static_cast<double>(sequences);
    }
    if (sites_[i].stream_squares != 0)
      rows.back().branch_share = std::sqrt(sites_[i].branch_squares / sites_[i].stream_squares);
  }
  return rows;
}

std::vector<HeadRow> SiteStatistics::head_rows() const {
  std::vector<HeadRow> rows;
  rows.reserve(heads_.size());
  for (const HeadStats& stats : heads_) {
    const Index layer = std::ssize(rows) / n_head_ + 1, head = std::ssize(rows) % n_head_ + 1;
    const double queries = static_cast<double>(stats.queries);
    const double max_logit =
        std::isnan(stats.entropy) ? stats.entropy : stats.max_logit;  // of logits that are NaN
    rows.push_back({.layer = layer,
                    .head = head,
                    .max_logit = max_logit,
                    .entropy = stats.entropy / queries,
                    .first_share = stats.first_share / queries});
  }
  return rows;
}

}  // namespace normscope
