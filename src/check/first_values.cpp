// The first weights have the scale that the config's scheme and placement ask for, written out once more.
#include <algorithm>
#include <limits>

#include "check/trial.h"
#include "config/names.h"

namespace normscope {
namespace {

// Standard deviation of the elements of W (out, in): by scheme, then 1/sqrt(2L) for what writes the stream
// (gpt2), then DeepNet's (8L)^(-1/4) for v, attention out and the FFN.
double expected_std(const ModelConfig& config, double out, double in, bool writes_stream, bool gained) {
  const double layers = static_cast<double>(config.n_layer);
  double std = 0;
  switch (config.init.scheme) {
    case InitScheme::gpt2:
      std = config.init.std;
      break;
    case InitScheme::xavier_normal:
    case InitScheme::xavier_uniform:
      std = std::sqrt(2 / (in + out));
      break;
    case InitScheme::kaiming_normal:
      std = std::sqrt(2 / in);
      break;
  }
  if (writes_stream && config.init.residual_scaling) std /= std::sqrt(2 * layers);
  if (gained) std *= std::pow(8 * layers, -0.25);
  return std;
}

class FirstValues {
 public:
  explicit FirstValues(const Model<double>& model) : model_(model) {}

  // How far the root mean square of a part is from `std`, in standard errors: that of n normal draws has a
  // relative error of 1/sqrt(2n), of uniform ones less.
  void random(int parameter, Index begin, Index count, double std, const char* part = "") {
    const Parameter& p = model_.layout()[parameter];
    const double n = static_cast<double>(count);
    const double rms = l2_norm(count, model_.parameters.at(p) + begin) / std::sqrt(n);
    worst.add(std == 0 ? rms : std::abs(rms / std - 1) * std::sqrt(2 * n), p.name + part);
  }
  void random(int parameter, double std) {
    if (parameter != no_parameter) random(parameter, 0, model_.layout()[parameter].size, std);
  }
  void constant(int parameter, double value) {
    if (parameter == no_parameter) return;
    const Parameter& p = model_.layout()[parameter];
    const double* w = model_.parameters.at(p);
    const bool all = std::all_of(w, w + p.size, [&](double x) { return x == value; });
    worst.add(all ? 0 : std::numeric_limits<double>::infinity(), p.name);
  }
  void norm(const NormParameters& p) {
    constant(p.weight, 1);
    constant(p.bias, 0);
    constant(p.alpha, 0.5);
    constant(p.running_mean, 0);
    constant(p.running_var, 1);
  }

  Worst worst;

 private:
  const Model<double>& model_;
};

}  // namespace

void prove_first_values(const Subject& subject) {
  const ModelConfig& config = subject.config.model;
  Model<double> model(config, subject.corpus.vocab.size(), GemmProvider::openblas);
  initialise(config, model.layout(), static_cast<std::uint64_t>(subject.config.train.seed), model.parameters);
  const ParameterLayout& layout = model.layout();
  const std::vector<const Placement*> placements = placements_of(config);
  const double C = static_cast<double>(config.d_model), F = static_cast<double>(config.d_ff);

  FirstValues check(model);
  check.random(layout.token_embedding, config.init.embed_std);
  check.random(layout.position_embedding, config.init.embed_std);
  check.norm(layout.embed_norm);
  for (std::size_t i = 0; i < layout.blocks.size(); ++i) {
    const BlockParameters& p = layout.blocks[i];
    const bool deepnorm = placements[i]->kind == PlacementKind::deepnorm;
    const Index third = layout[p.qkv.weight].size / 3;
    check.random(p.qkv.weight, 0, 2 * third, expected_std(config, C, C, false, false), ", q and k");
    check.random(p.qkv.weight, 2 * third, third, expected_std(config, C, C, false, deepnorm), ", v");
    check.random(p.attn_out.weight, expected_std(config, C, C, true, deepnorm));
    check.random(p.ffn_in.weight, expected_std(config, F, C, false, deepnorm));
    check.random(p.ffn_gate.weight, expected_std(config, F, C, false, deepnorm));
    check.random(p.ffn_out.weight, expected_std(config, C, F, true, deepnorm));
    for (const NormParameters& norm : {p.attn_norm, p.attn_post_norm, p.ffn_norm, p.ffn_post_norm})
      check.norm(norm);
    for (const int gain : {p.q_norm, p.k_norm}) check.constant(gain, 1);
    for (const int zero : {p.qkv.bias, p.attn_out.bias, p.ffn_in.bias, p.ffn_gate.bias, p.ffn_out.bias,
                           p.attn_scale, p.ffn_scale})
      check.constant(zero, 0);
  }
  check.norm(layout.final_norm);
  if (layout.head != layout.token_embedding) {
    check.random(layout.head,
                 expected_std(config, static_cast<double>(model.transformer.vocab_size()), C, false, false));
  }
  subject.report({text("first weights have the scale of ", name_of(config.init.scheme),
                       " and the placement; gains 1, biases 0 (in standard errors)"),
                  check.worst.error, 6, check.worst.place});
}

}  // namespace normscope
