#include "config/checks.h"

#include <algorithm>

#include "config/names.h"
#include "core/error.h"

namespace normscope {
namespace {

bool has_placement(const ModelConfig& model, PlacementKind kind) {
  return std::find(model.norm_placement.begin(), model.norm_placement.end(), kind) !=
         model.norm_placement.end();
}

// "4 or 8": the divisors of `whole` next to `number`, below and above.
std::string nearest_divisors(Index number, Index whole) {
  Index below = std::min(number, whole), above = number;
  while (whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return above > whole || above == below ? text(below) : text(below, " or ", above);
}

// Norms over a single number: with a mean taken off, nothing of x is left; without, only its sign.
std::vector<Complaint> norms_of_one_number(const RunConfig& config) {
  const ModelConfig& m = config.model;
  std::vector<Complaint> all;
  if (m.norm == NormKind::layernorm && m.d_model == 1) {
    all.push_back(
        {"model.d_model",
         "1 with layernorm: one feature less its mean is 0, so every norm returns its bias whatever "
         "the input; raise d_model",
         {"model.norm"}});
  }
  if (m.norm == NormKind::rmsnorm && m.d_model == 1) {
    all.push_back({"model.d_model",
                   "1 with rmsnorm: one feature over its own size is its sign, so nothing before a norm gets "
                   "a gradient; raise d_model",
                   {"model.norm"}});
  }
  if (m.norm == NormKind::groupnorm && m.norm_groups == m.d_model) {
    all.push_back(
        {"model.norm_groups",
         text(m.norm_groups, " for model.d_model = ", m.d_model,
              " leaves groups of one feature, and one feature less its mean is 0: every norm returns "
              "its bias whatever the input; ",
              m.d_model == 1 ? "raise d_model" : "use fewer groups (1 is layernorm)"),
         {"model.d_model", "model.norm"}});
  }
  if (m.norm == NormKind::instancenorm && m.context == 1) {
    all.push_back({"model.norm",
                   "instancenorm with model.context = 1: one position less the mean over positions is 0, so "
                   "every norm returns its bias whatever the input; raise context, or use another norm",
                   {"model.context"}});
  }
  // One row has no variance over the batch.
  if (m.norm == NormKind::batchnorm && config.train.batch_size == 1 && m.context == 1) {
    all.push_back({"model.norm",
                   "batchnorm needs batch_size*context >= 2, got 1; raise train.batch_size",
                   {"train.batch_size", "model.context"}});
  }
  if (m.qk_norm && m.n_head == m.d_model) {
    all.push_back({"model.qk_norm",
                   text("true with heads of one feature (n_head = d_model = ", m.d_model,
                        "): each query and key becomes its sign, so their weights get no gradient; use fewer "
                        "heads"),
                   {"model.n_head", "model.d_model"}});
  }
  return all;
}

}  // namespace

std::vector<Complaint> check_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  std::vector<Complaint> all;
  if (config.train.precision == Precision::bf16 && config.train.gemm == GemmChoice::openblas) {
    all.push_back({"train.gemm", "openblas has no bf16 product; use auto or native", {"train.precision"}});
  }
  const bool heads_divide = m.d_model % m.n_head == 0;
  if (!heads_divide) {
    all.push_back({"model.n_head",
                   text(m.n_head, " does not divide model.d_model = ", m.d_model, "; try ",
                        nearest_divisors(m.n_head, m.d_model)),
                   {"model.d_model"}});
  }
  if (m.position == Position::rope && heads_divide && m.d_model / m.n_head % 2 != 0) {
    all.push_back({"model.position",
                   text("rope rotates pairs of features, but a head is d_model/n_head = ",
                        m.d_model / m.n_head, " wide; make that even"),
                   {"model.d_model", "model.n_head"}});
  }
  if (m.position == Position::sinusoidal && m.d_model % 2 != 0) {
    all.push_back({"model.position",
                   text("sinusoidal needs an even model.d_model, got ", m.d_model, "; try ", m.d_model + 1),
                   {"model.d_model"}});
  }
  if (m.norm == NormKind::groupnorm && m.d_model % m.norm_groups != 0) {
    all.push_back({"model.norm_groups",
                   text(m.norm_groups, " does not divide model.d_model = ", m.d_model, "; try ",
                        nearest_divisors(m.norm_groups, m.d_model)),
                   {"model.d_model", "model.norm"}});
  }
  if (const auto listed = static_cast<Index>(m.norm_placement.size()); listed != 1 && listed != m.n_layer) {
    all.push_back({"model.norm_placement",
                   text("a list of ", listed, " for model.n_layer = ", m.n_layer,
                        "; a list names the placement of every block"),
                   {"model.n_layer"}});
  }
  if (!m.residual && has_placement(m, PlacementKind::rezero)) {
    all.push_back(
        {"model.residual",
         "false with placement rezero leaves y = a*F(x), which is 0 at the start and learns nothing",
         {"model.norm_placement"}});
  }
  if (!m.residual && has_placement(m, PlacementKind::deepnorm)) {
    all.push_back({"model.residual",
                   "false with placement deepnorm leaves y = N(F(x)): alpha has no x to scale, and the norm "
                   "undoes the initialisation that goes with it; use placement post",
                   {"model.norm_placement"}});
  }
  if (m.init.residual_scaling && m.init.scheme != InitScheme::gpt2) {
    all.push_back({"model.init.residual_scaling",
                   text("true, but only scheme gpt2 has it, and the scheme is ", name_of(m.init.scheme),
                        "; leave it out"),
                   {"model.init.scheme"}});
  }
  const std::vector<Complaint> of_one = norms_of_one_number(config);
  all.insert(all.end(), of_one.begin(), of_one.end());
  return all;
}

}  // namespace normscope
