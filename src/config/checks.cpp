// Refuses combinations of keys that cannot be trained. The field table checks single values.
#include <algorithm>

#include "config/fields.h"
#include "config/load.h"
#include "core/error.h"

namespace normscope {
namespace {

// The divisors of `whole` next to `number`, below and above: "4 or 8".
std::string nearest_divisors(Index number, Index whole) {
  Index below = std::min(number, whole), above = number;
  while (whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return above > whole || above == below ? text(below) : text(below, " or ", above);
}

}  // namespace

std::vector<ConfigError> check_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const NormRow& norm = norm_row(m.norm);
  const std::set<const Placement*> rows = named_placements(m);
  std::vector<ConfigError> errors;
  const auto refuse_if = [&](bool wrong, std::vector<std::string> keys, const auto&... what) {
    if (wrong) errors.push_back({std::move(keys), text(what...)});
  };
  // Refuses the first key's value if it does not divide the second key's.
  const auto must_divide = [&](Index part, Index whole, const std::vector<std::string>& keys) {
    refuse_if(whole % part != 0, keys, part, " does not divide ", keys[1], " = ", whole, "; try ",
              nearest_divisors(part, whole));
  };

  // --- shapes ---
  must_divide(m.n_head, m.d_model, {"model.n_head", "model.d_model"});
  const Index head_width = m.d_model / m.n_head;
  refuse_if(m.position == Position::rope && m.d_model % m.n_head == 0 && head_width % 2 != 0,
            {"model.position", "model.d_model", "model.n_head"},
            "rope rotates pairs of features, but a head is d_model/n_head = ", head_width,
            " wide; make that even");
  refuse_if(m.position == Position::sinusoidal && m.d_model % 2 != 0, {"model.position", "model.d_model"},
            "sinusoidal needs an even model.d_model, got ", m.d_model, "; try ", m.d_model + 1);
  const bool inner =
      std::ranges::any_of(m.norm_placement, [&](const auto& block) { return has_inner_norm(m, *block.ffn); });
  if (norm.over == NormOver::groups) {
    must_divide(m.norm_groups, m.d_model, {"model.norm_groups", "model.d_model", "model.norm"});
    if (inner) must_divide(m.norm_groups, m.d_ff, {"model.norm_groups", "model.d_ff", "model.inner_norm"});
  }

  // Only block 1 can have a norm on the embeddings.
  const auto placements = std::ssize(m.norm_placement);
  refuse_if(placements != 1 && placements != m.n_layer, {"model.norm_placement", "model.n_layer"},
            "a list of ", placements, " for model.n_layer = ", m.n_layer,
            "; a list names the placement of every block");
  for (Index i = 0; i < placements; ++i) {
    const auto [attn, ffn] = m.norm_placement[i];
    for (const Placement* row : std::set{attn, ffn}) {
      refuse_if(row->embed_norm && (i > 0 || attn != ffn), {"model.norm_placement"}, row->name,
                " adds a norm on the embeddings, so only the first block can have it, for both sublayers; ",
                "sandwich has the others");
    }
  }

  // --- training ---
  const TrainConfig& train = config.train;
  refuse_if(rate_falls(config) && train.min_lr > train.lr, {"train.min_lr", "train.lr"}, train.min_lr,
            " is above train.lr = ", train.lr,
            ", so the rate would rise while it decays; lower it, or leave it out for lr/10");
  refuse_if(train.optimizer != OptimizerKind::sgd && train.adam_eps == 0, {"train.adam_eps"},
            "0 leaves AdamW 0/0, NaN as in PyTorch, for a weight whose gradients are 0, such as ",
            "the embedding of a character that a step lacks; use an epsilon > 0");

  // --- the residual stream ---
  for (const Placement* row : rows) {
    refuse_if(!m.residual && row->learned_scale, {"model.residual", "model.norm_placement"},
              "false with placement ", row->name,
              " leaves y = a*F(x), which is 0 at the start and learns nothing");
    refuse_if(!m.residual && !row->alpha.is_one(), {"model.residual", "model.norm_placement"},
              "false with placement ", row->name,
              " leaves y = N(F(x)): alpha has no x to scale, and the norm undoes the ",
              "initialisation that goes with it; use placement post");
  }
  const bool is_zero = m.branch_scale.factor == 0;
  refuse_if(is_zero && m.branch_scale_learned == LearnedScale::none, {"model.branch_scale"},
            "0 switches every branch off; to start at 0 and learn the scale, set "
            "model.branch_scale_learned=scalar");
  refuse_if(is_zero && !m.residual, {"model.branch_scale", "model.residual"},
            "0 without the residual leaves a stream of 0, which learns nothing");
  const bool starts_at_zero = is_zero || std::ranges::any_of(rows, &Placement::learned_scale);
  refuse_if(m.init.zero_branches && (starts_at_zero || !m.residual),
            {"model.init.zero_branches", m.residual ? "model.branch_scale" : "model.residual"},
            m.residual ? "true with branch scales that start at 0 too: neither gets a gradient"
                       : "true without the residual leaves a stream of 0, which learns nothing");

  // A norm of zeros without epsilon divides 0 by 0, so that the first step diverges.
  const bool reads_branch = std::ranges::any_of(rows, &Placement::norm_branch);
  refuse_if(m.init.zero_branches && m.norm_eps == 0 && norm.has_statistics() && reads_branch,
            {"model.init.zero_branches", "model.norm_placement", "model.norm_eps"},
            "true makes the branches 0, and with model.norm_eps = 0 a norm after them divides 0 by 0; ",
            "use an epsilon > 0");

  // Normalising a single number removes it: LayerNorm gives the bias, RMSNorm only the sign.
  const auto refuse_one = [&](NormOver over, Index numbers, const char* product,
                              std::vector<std::string> keys) {
    refuse_if(norm.over == over && numbers == 1, std::move(keys), norm.name, " with ", product,
              " = 1 normalises a single number, which erases it; use ", product, " > 1 or another norm");
  };
  const bool divides = m.d_model % m.norm_groups == 0;
  refuse_one(NormOver::features, m.d_model, "model.d_model", {"model.d_model", "model.norm"});
  refuse_one(NormOver::groups, divides ? m.d_model / m.norm_groups : 0, "model.d_model/model.norm_groups",
             {"model.norm_groups", "model.d_model", "model.norm"});
  refuse_one(NormOver::sequence, m.context, "model.context", {"model.norm", "model.context"});
  refuse_one(NormOver::batch, config.train.batch_size * m.context, "train.batch_size*model.context",
             {"model.norm", "train.batch_size", "model.context"});
  refuse_if((m.qk_norm || m.qkv_norm) && m.n_head == m.d_model,
            {m.qkv_norm ? "model.qkv_norm" : "model.qk_norm", "model.n_head", "model.d_model"},
            "true with heads of one feature (n_head = d_model = ", m.d_model,
            "): each query and key becomes its sign, so their weights get no gradient; use fewer heads");
  return errors;
}

}  // namespace normscope
