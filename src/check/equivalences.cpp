// Two ways to say the same model must compute the same: placements that coincide, and logits that are 0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check/trial.h"
#include "config/names.h"

namespace normscope {
namespace {

using enum PlacementKind;

// The config with another placement in every block, and the same final norm whatever the placement's own.
ModelConfig with_placement(ModelConfig config, PlacementKind placement, bool final_norm) {
  config.norm_placement = {placement};
  config.final_norm = final_norm && config.norm != NormKind::none;
  if (placement == pre_scaled) config.init.residual_scaling = false;
  return without_dropout(config);
}

// Gives `to` every parameter of `from` that it has too.
void copy_parameters(const Model<double>& from, Model<double>& to) {
  for (const Parameter& p : to.layout().list()) {
    const int same = from.layout().find(p.name);
    if (same != no_parameter)
      std::copy_n(from.parameters.at(from.layout()[same]), p.size, to.parameters.at(p));
  }
}

// Training passes: batch norm by the batch's own statistics. The error holds loss, logits and the gradients
// of the parameters that both have.
double distance(Model<double>& a, Model<double>& b, const TokenBatch& batch) {
  std::vector<double> logits_a, logits_b, gradients_a, gradients_b;
  a.loss_and_gradients(batch, 1, {}, nullptr, &logits_a);
  b.loss_and_gradients(batch, 1, {}, nullptr, &logits_b);
  for (const Parameter& p : a.layout().list()) {
    const int same = b.layout().find(p.name);
    if (same == no_parameter || !p.is_matrix()) continue;
    const double *ga = a.gradients.at(p), *gb = b.gradients.at(b.layout()[same]);
    gradients_a.insert(gradients_a.end(), ga, ga + p.size);
    gradients_b.insert(gradients_b.end(), gb, gb + p.size);
  }
  return std::max(relative_distance(logits_a, logits_b), relative_distance(gradients_a, gradients_b));
}

// pre_scaled divides what F reads by sqrt(l); so does a pre-norm whose gain and bias are that much smaller.
void pre_scaled_is_pre(const Subject& subject, const TokenBatch& batch) {
  ModelConfig config = subject.config.model;
  config.norm_affine = true;
  Trial scaled(subject, with_placement(config, pre_scaled, true));
  Trial plain(subject, with_placement(config, pre, true));
  copy_parameters(scaled, plain);
  for (std::size_t i = 0; i < plain.layout().blocks.size(); ++i) {
    const BlockParameters& p = plain.layout().blocks[i];
    for (const int vector : {p.attn_norm.weight, p.attn_norm.bias, p.ffn_norm.weight, p.ffn_norm.bias}) {
      if (vector == no_parameter) continue;
      const Parameter& gain = plain.layout()[vector];
      for (Index c = 0; c < gain.size; ++c) {
        plain.parameters.at(gain)[c] /= std::sqrt(static_cast<double>(i + 1));
      }
    }
  }
  subject.report({"pre_scaled is pre with block l's gains divided by sqrt(l)", distance(scaled, plain, batch),
                  identity_limit, ""});
}

void mix_is_pre_or_post(const Subject& subject, const TokenBatch& batch) {
  double worst = 0;
  for (const auto& [fraction, placement] : {std::pair{0.0, pre}, {1.0, post}}) {
    ModelConfig config = subject.config.model;
    config.mix_post_fraction = fraction;
    Trial mixed(subject, with_placement(config, mix, true));
    Trial plain(subject, with_placement(config, placement, true));
    copy_parameters(plain, mixed);
    worst = std::max(worst, distance(mixed, plain, batch));
  }
  subject.report({"mix of fraction 0 is pre, of fraction 1 is post (to the bit)", worst, 0, ""});
}

// Of one token, layer and RMS norm are undone by the right gain and bias: gain sigma and bias mean for what
// N2 reads. A sandwich whose N2 are undone is pre-norm, at that token.
void sandwich_is_pre(const Subject& subject) {
  ModelConfig config = subject.config.model;
  const bool centred = config.norm == NormKind::layernorm;
  config.norm_affine = true;
  config.norm_bias = centred;
  config.norm_eps_outside = false;
  Trial sandwiched(subject, with_placement(config, sandwich, true));
  Trial plain(subject, with_placement(config, pre, true));
  copy_parameters(sandwiched, plain);
  const TrialBatch token(subject, 1, 1);
  SiteCopies<double> sites;
  plain.loss_and_gradients(token.view(), 1, {}, &sites);
  for (std::size_t i = 0; i < plain.layout().blocks.size(); ++i) {
    const BlockParameters& p = sandwiched.layout().blocks[i];
    const std::pair<NormParameters, Site> after[] = {{p.attn_post_norm, Site::attn_out},
                                                     {p.ffn_post_norm, Site::ffn_out}};
    for (const auto& [norm, site] : after) {
      const std::vector<double>& branch = sites.value({static_cast<int>(i) + 1, site}).data;
      const double n = static_cast<double>(branch.size());
      double mean = 0, variance = 0;
      for (const double f : branch) mean += centred ? f / n : 0;
      for (const double f : branch) variance += (f - mean) * (f - mean) / n;
      const Parameter& gain = sandwiched.layout()[norm.weight];
      std::fill_n(sandwiched.parameters.at(gain), gain.size, std::sqrt(variance + config.norm_eps));
      if (norm.bias == no_parameter) continue;
      const Parameter& bias = sandwiched.layout()[norm.bias];
      std::fill_n(sandwiched.parameters.at(bias), bias.size, mean);
    }
  }
  std::vector<double> a, b;
  sandwiched.loss_and_gradients(token.view(), 1, {}, nullptr, &a);
  plain.loss_and_gradients(token.view(), 1, {}, nullptr, &b);
  subject.report({"sandwich whose second norms are undone is pre (one token)", relative_distance(a, b),
                  identity_limit, ""});
}

}  // namespace

void prove_placement_equivalences(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  if (config.norm == NormKind::none) return subject.does_not_apply("there is no norm to place");
  const TrialBatch batch = affordable_batch(subject);
  if (norm_row(config.norm).has_gain) pre_scaled_is_pre(subject, batch.view());
  mix_is_pre_or_post(subject, batch.view());
  const bool over_features = config.norm == NormKind::layernorm || config.norm == NormKind::rmsnorm;
  if (over_features && config.d_model > 1) sandwich_is_pre(subject);
}

// Logits of 0 are a uniform guess: its cross-entropy is ln V.
void prove_uniform_loss(const Subject& subject) {
  Trial model(subject, without_dropout(subject.config.model));
  const Parameter& head = model.layout()[model.layout().head];
  std::fill_n(model.parameters.at(head), head.size, 0.0);
  const TrialBatch batch = affordable_batch(subject);
  const double want = std::log(static_cast<double>(subject.corpus.vocab.size()));
  const double loss = model.loss_and_gradients(batch.view());
  subject.report(
      {text("a head of zeros gives the loss ln V = ", want), std::abs(loss - want), identity_limit, ""});
}

}  // namespace normscope
