#include "train/divergence.h"

#include <cmath>

#include "core/error.h"

namespace normscope {
namespace {

// "block 3 ffn_out", "the embedding", "the logits".
std::string place_text(Index layer, const std::string& site, Index blocks) {
  if (layer == 0) return "the embedding";
  if (layer > blocks) return "the " + (site == "final" ? std::string("final activation") : site);
  return text("block ", layer, ' ', site);
}

}  // namespace

FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms<float>& norms,
                               const ParameterLayout& layout, Index step) {
  if (const std::optional<Nonfinite> first = statistics.first_nonfinite()) {
    return {step, first->place.layer, name_of(first->place.site), "", first->in_gradient};
  }
  for (std::size_t i = 0; i < norms.by_part.size(); ++i) {
    if (!std::isfinite(norms.by_part[i]))
      return {step, layout[norms.parts[i].parameter].layer, "", norms.parts[i].name, true};
  }
  return {step, static_cast<int>(layout.blocks.size()) + 1, "loss", "", false};
}

std::string text_of(const FirstNonfinite& first, Index n_layer) {
  return text(first.in_gradient ? "the gradient of " : "",
              first.param.empty() ? place_text(first.layer, first.site, n_layer) : first.param);
}

}  // namespace normscope
