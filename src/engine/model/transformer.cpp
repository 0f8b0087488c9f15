#include "model/transformer.h"

#include <algorithm>
#include <cmath>

#include "ops/causal_attention.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/pointwise_norm.h"
#include "ops/query_key_norm.h"
#include "ops/residual.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace normscope {
namespace {

// The sites of dropout. Each site of each block (0: the embedding) has its own mask.
enum class DropoutSite : std::uint64_t { embedding, attention_weights, attention_branch, ffn_branch };
constexpr std::uint64_t dropout_sites = 4;

// The angle of a pair of features at a position, for sinusoids (width C) and for rope (width D).
double position_angle(Index position, Index pair, Index width) {
  constexpr double wavelength_base = 10000.0;
  return static_cast<double>(position) *
         portable::pow(wavelength_base, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
}

}  // namespace

template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const Pass& pass, Var<Real> x) {
  using enum NormKind;
  const Real eps = static_cast<Real>(config.norm_eps);
  const bool outside = config.norm_eps_outside;
  const auto over_features = [&](Index groups, bool centred) {
    const LayerNorm<Real> norm = {.groups = groups,
                                  .centred = centred,
                                  .eps = eps,
                                  .eps_outside = outside,
                                  .detached = config.norm_detach};
    return layer_norm(tape, norm, x, vars.weight, vars.bias);
  };
  switch (config.norm) {
    case layernorm:
      return over_features(1, true);
    case rmsnorm:
      return over_features(1, false);
    case groupnorm:
      return over_features(config.norm_groups, true);
    case dyt:
      return pointwise_norm(tape, PointwiseFn::tanh, x, vars.alpha, {}, vars.weight, vars.bias);
    case derf:
      return pointwise_norm(tape, PointwiseFn::erf, x, vars.alpha, vars.shift, vars.weight, vars.bias);
    case instancenorm:
      return batch_norm(tape, {pass.context, eps, outside}, x, vars.weight, vars.bias);
    case batchnorm: {
      const BatchNorm<Real> norm{x.rows, eps, outside};
      return pass.eval_mode ? batch_norm_inference(tape, norm, x, vars.weight, vars.bias, vars.running)
                            : batch_norm(tape, norm, x, vars.weight, vars.bias, vars.batch);
    }
    case none:
      return x;
  }
  fail("norm", "no code for norm number ", static_cast<int>(config.norm));
}

template <class Real>
KeyValueCache<Real>::KeyValueCache(const ModelConfig& config)
    : keys(config.n_layer, std::vector<Real>(config.context * config.d_model)), values(keys) {}

template <class Real>
Transformer<Real>::Transformer(const ModelConfig& config, Index vocab_size, GemmMode mode)
    : config_(config),
      vocab_size_(vocab_size),
      mode_(mode),
      layout_(config, vocab_size),
      placements_(placements_of(config)) {
  const Index T = config.context, C = config.d_model, half_head = C / config.n_head / 2;
  if (config.position == Position::sinusoidal) {
    // Sines at even features, cosines at odd ones (Vaswani et al. 2017).
    for (Index t = 0; t < T; ++t) {
      for (Index c = 0; c < C; ++c) {
        const double a = position_angle(t, c / 2, C);
        sinusoids_.push_back(static_cast<Real>(c % 2 == 0 ? portable::sin(a) : portable::cos(a)));
      }
    }
  }
  if (config.position == Position::rope) {
    for (Index t = 0; t < T; ++t) {
      for (Index i = 0; i < half_head; ++i) {
        cosines_.push_back(static_cast<Real>(portable::cos(position_angle(t, i, 2 * half_head))));
        sines_.push_back(static_cast<Real>(portable::sin(position_angle(t, i, 2 * half_head))));
      }
    }
  }
}

template <class Real>
struct Transformer<Real>::Forward {
  const Transformer& model;
  Tape<Real>& tape;
  ParameterBuffer<Real>& parameters;
  ParameterBuffer<Real>* gradients;
  RunningStatistics<Real>& running;
  const Pass& pass;
  KeyValueCache<Real>* cache;
  const ModelConfig& config = model.config_;
  const ParameterLayout& layout = model.layout_;
  // A cached pass is of one character, as a rule: its products of one row do not repay packing B.
  GemmMode mode = cache != nullptr ? model.mode_.with_cache() : model.mode_;

  Var<Real> parameter(int index) {
    if (index == no_parameter) return {};
    const Parameter& p = layout[index];
    return tape.parameter(parameters.at(p), gradients != nullptr ? gradients->at(p) : nullptr, p.rows(),
                          p.cols());
  }
  Var<Real> linear(const LinearParameters& p, Var<Real> x, std::optional<Activation> activation = {}) {
    return normscope::linear(tape, mode, x, parameter(p.weight), parameter(p.bias), activation);
  }
  // N(x), or x if there is no norm.
  Var<Real> norm(const NormParameters& p, Var<Real> x) {
    if (!p.present) return x;
    NormVars<Real> vars{
        parameter(p.weight), parameter(p.bias), parameter(p.alpha), parameter(p.shift), {}, {}};
    if (p.running_mean != no_parameter) {
      const Index mean = layout.buffers()[p.running_mean].offset;
      const Index variance = layout.buffers()[p.running_var].offset;
      vars.running = {&running.values[mean], &running.values[variance]};
      vars.batch = {&running.batch[mean], &running.batch[variance]};
    }
    return apply_norm(tape, config, vars, pass, x);
  }

  Dropout drop(int layer, DropoutSite site) const {
    if (!pass.with_dropout) return {};
    const auto draw = dropout_sites * static_cast<std::uint64_t>(layer) + static_cast<std::uint64_t>(site);
    return {config.dropout, pass.dropout_stream.at(draw), pass.context, pass.first_sequence};
  }
  Var<Real> tap(int layer, Site site, Var<Real> x) {
    tape.tap(x, {layer, site});
    return x;
  }
  Index first_position() const { return cache != nullptr ? cache->length : 0; }

  Var<Real> embed() {
    const Index C = config.d_model;
    Var<Real> positions = parameter(layout.position_embedding);
    Index first = first_position();  // in `positions`
    if (config.position == Position::sinusoidal) {
      positions = tape.constant(&model.sinusoids_[first * C], pass.context, C);
      first = 0;
    }
    Var<Real> x =
        embedding(tape, pass.tokens, pass.context, parameter(layout.token_embedding), positions, first);
    x = norm(layout.embed_norm, x);
    return dropout(tape, drop(0, DropoutSite::embedding), x);
  }

  Var<Real> attention(std::size_t index, Var<Real> x) {
    const BlockParameters& p = layout.blocks[index];
    const Index T = pass.context, H = config.n_head;

    Var<Real> qkv = linear(p.qkv, x);
    if (config.qk_norm || config.qkv_norm) {
      qkv = query_key_norm(tape, static_cast<Real>(config.norm_eps), H, qkv, parameter(p.q_norm),
                           parameter(p.k_norm), parameter(p.v_norm));
    }
    if (config.position == Position::rope) {
      qkv = rotary(tape, T, H, qkv, model.cosines_.data(), model.sines_.data(), first_position());
    }
    Var<Real> y;
    if (cache != nullptr) {
      y = cached_attention(tape, mode, H, qkv, cache->length, cache->keys[index].data(),
                           cache->values[index].data());
    } else {
      const int layer = static_cast<int>(index) + 1;
      const std::span<HeadStats> heads = tape.room_for_heads(qkv.rows / T * H);
      y = causal_attention(tape, mode, T, H, qkv, drop(layer, DropoutSite::attention_weights), heads);
      tape.tap_heads(layer, heads);
    }
    return linear(p.attn.out, norm(p.attn.norm_inner, y));
  }

  Var<Real> feed_forward(std::size_t index, Var<Real> x) {
    const BlockParameters& p = layout.blocks[index];
    Var<Real> hidden;
    if (config.activation == Activation::swiglu) {
      const Var<Real> in = linear(p.ffn_in, x), gate = linear(p.ffn_gate, x);
      hidden = swiglu(tape, gate, in);
    } else {
      hidden = linear(p.ffn_in, x, config.activation);
    }
    tap(static_cast<int>(index) + 1, Site::ffn_hidden, hidden);
    return linear(p.ffn.out, norm(p.ffn.norm_inner, hidden));
  }

  Var<Real> block(std::size_t index, Var<Real> x) {
    const int layer = static_cast<int>(index) + 1;
    const BlockParameters& p = layout.blocks[index];

    // y = N_out(alpha x + a N_branch(F(s N_in(x)))). Absent norms and scales, and factors of 1, return their
    // argument.
    struct Sites {
      Site in, out, sum;
      DropoutSite dropout;
    };
    const auto sublayer = [&](const Placement& placement, const SublayerParameters& w, const Sites& at,
                              auto F) {
      const Real alpha = static_cast<Real>(placement.alpha.of(config.n_layer));
      const Real s = static_cast<Real>(placement.input_scale.of(layer));
      const Var<Real> in = tap(layer, at.in, scale(tape, s, norm(w.norm_in, x)));  // s N_in(x)
      const Var<Real> out = tap(layer, at.out, F(in));                             // F(s N_in(x))
      const Var<Real> dropped = dropout(tape, drop(layer, at.dropout), out);
      const double a =
          w.scale == no_parameter ? branch_scale_of(config, placement).start : 1;  // or w.scale, below
      const Real factor = static_cast<Real>(std::min(pass.branch_progress / layer, 1.0) * a);
      const Var<Real> normed = scale(tape, factor, norm(w.norm_branch, dropped));
      const Var<Real> branch = scale_by(tape, parameter(w.scale), normed);  // a N_branch(F(s N_in(x)))
      Var<Real> sum = branch;
      if (config.residual) {
        tape.tap_branch({layer, at.out}, alpha, branch);
        sum = residual_sum(tape, alpha, x, branch);  // alpha x + a N_branch(F(s N_in(x)))
      }
      x = tap(layer, at.sum, norm(w.norm_out, sum));  // y
    };
    sublayer(*model.placements_[index].attn, p.attn,
             {Site::attn_in, Site::attn_out, Site::stream_mid, DropoutSite::attention_branch},
             [&](Var<Real> in) { return attention(index, in); });
    sublayer(*model.placements_[index].ffn, p.ffn,
             {Site::ffn_in, Site::ffn_out, Site::stream, DropoutSite::ffn_branch},
             [&](Var<Real> in) { return feed_forward(index, in); });
    return x;
  }

  Var<Real> blocks_and_head(Var<Real> x) {
    for (std::size_t index = 0; index < model.placements_.size(); ++index) x = block(index, x);
    if (cache != nullptr) cache->length += x.rows;

    const int last = static_cast<int>(config.n_layer) + 1;
    x = tap(last, Site::final, norm(layout.final_norm, x));
    return tap(last, Site::logits, linear({.weight = layout.head}, x));
  }
};

template <class Real>
Var<Real> Transformer<Real>::logits(Tape<Real>& tape, ParameterBuffer<Real>& parameters,
                                    ParameterBuffer<Real>* gradients, RunningStatistics<Real>& running,
                                    const Pass& pass, KeyValueCache<Real>* cache) const {
  Forward forward{*this, tape, parameters, gradients, running, pass, cache};
  const Var<Real> x0 = forward.tap(0, Site::stream, forward.embed());
  return forward.blocks_and_head(x0);
}

template Var<float> apply_norm(Tape<float>&, const ModelConfig&, const NormVars<float>&, const Pass&,
                               Var<float>);
template Var<double> apply_norm(Tape<double>&, const ModelConfig&, const NormVars<double>&, const Pass&,
                                Var<double>);
template struct KeyValueCache<float>;
template struct KeyValueCache<double>;
template class Transformer<float>;
template class Transformer<double>;

}  // namespace normscope
