#include "run/figures.h"

#include <algorithm>
#include <cmath>

#include "model/placement.h"

namespace normscope {

double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer) {
  double first = 0, last = 0;
  for (const ParameterRow& row : rows) {
    const double square = row.grad_norm * row.grad_norm;
    if (row.layer == 1) first += square;
    if (row.layer == n_layer) last += square;
  }
  return std::sqrt(first / last);
}

double growth(const std::vector<SiteRow>& rows) {
  // The first row is stream 0; the third from the end is stream L (final and logits follow).
  return rows[rows.size() - 3].rms / rows.front().rms;
}

std::optional<double> branch_share(const std::vector<SiteRow>& rows) {
  double stream = 0, sum = 0;
  int branches = 0;
  for (const SiteRow& row : rows) {
    const Site site = row.place.site;
    if (site == Site::attn_out || site == Site::ffn_out) {
      sum += stream > 0 ? row.rms / stream : 0;
      ++branches;
    }
    if (site == Site::stream || site == Site::stream_mid) stream = row.rms;
  }
  if (branches == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / branches;
}

bool branches_too_small(const ModelConfig& config, double share) {
  const bool by_design = std::ranges::any_of(sublayer_rows(config), [](const Placement* row) {
    return row->norm_branch || row->learned_scale || !row->init_gain.is_one();
  });
  const bool scaled =
      config.branch_scale_learned != LearnedScale::none || config.branch_scale.of(config.n_layer) != 1;
  return share < 0.05 && !scaled && config.norm != NormKind::none && !by_design;
}

}  // namespace normscope
