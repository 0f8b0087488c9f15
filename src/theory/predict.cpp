#include "theory/predict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "model/parameters.h"
#include "model/transformer.h"
#include "telemetry/site_statistics.h"
#include "theory/activations.h"
#include "theory/attention.h"

namespace normscope {
namespace {

// Beyond this standard deviation of scores the gradient's mean is that of rare near-ties.
constexpr double saturated = 20;
constexpr Index longest_context = 1024;

// One sublayer, forward and then backward.
struct Sublayer {
  const Placement* row;
  int layer;
  bool is_ffn;
  NormMap norm_in = {}, norm_inner = {}, norm_branch = {}, norm_out = {};
  double input_scale = 1, alpha = 1, branch = 1;  // factors of x; branch: 0 where a learned scale starts so
  double in = 1, out = 1;                         // C Var of ffn.in; C or F Var of what writes the stream
  AttentionMap attention = {};
  Kernel slope = {};              // FFN: E phi' phi', of N(phi) where an inner norm N has no statistics
  double inner_slope = 1;         // E N'(phi)^2 of it
  std::vector<double> skip = {};  // the block's input in the FFN's x, where both join its sum; else empty
  double matrices = 2;            // whose noise reaches what the branch returns
  double share = 0;               // beta^2: mean square of the branch over that of the sum

  Site site(Site attn, Site ffn) const { return is_ffn ? ffn : attn; }
};

class Recursion {
 public:
  Recursion(const ModelConfig& config, double tokens, const TextStatistics& text,
            const TheoryOptions& options)
      : config_(config), tokens_(tokens), text_(text), options_(options) {
    for (const Place& place : places_of(config.n_layer)) result_.sites.push_back({place});
    result_.layers.resize(config.n_layer + 1);
  }

  Prediction run() {
    embed();
    int layer = 0;
    for (const BlockRows& block : rows_) {
      block_input_ = x_;
      block_noise_ = result_.amplification;
      forward({.row = block.attn, .layer = ++layer, .is_ffn = false});
      forward({.row = block.ffn, .layer = layer, .is_ffn = true});
      describe_layer(layer);
    }
    Kernel gradient = head();
    for (std::size_t k = sublayers_.size(); k-- > 0;) gradient = backward(sublayers_[k], gradient);
    return result_;
  }

 private:
  const ModelConfig& config_;
  double tokens_;
  const TextStatistics& text_;
  const TheoryOptions& options_;
  const Index T_ = config_.context;
  const std::vector<BlockRows> rows_ = placements_of(config_);
  // Of the kernels, and their tokens.
  const Index sequences_ = norm_row(config_.norm).over == NormOver::batch && options_.batch > 1 ? 2 : 1;
  const Index N_ = sequences_ * T_;
  std::vector<double> zeros_ = std::vector<double>(N_);
  Signal x_;  // the stream
  Signal x0_, block_input_;
  double block_noise_ = 0;          // amplification up to it
  Kernel block_skip_ = Kernel(N_);  // the gradient that a block's input receives from its FFN's sum
  std::vector<Sublayer> sublayers_;
  double noise_ = 0;  // relative variance of |dx|^2 from seed to seed
  Prediction result_;

  SitePrediction& at(int layer, Site site) {
    return *std::ranges::find(result_.sites, Place{layer, site}, &SitePrediction::place);
  }
  static double root(int layer, Site site, double mean_square) {
    if (!std::isfinite(mean_square))
      refuse("predict", "no prediction: ", name_of(site), " of layer ", layer, " is not finite");
    return std::sqrt(std::max(mean_square, 0.0));
  }
  void set_value(int layer, Site site, const Signal& x) {
    at(layer, site).rms = root(layer, site, x.mean_square());
    at(layer, site).rms_spread = std::sqrt(x.noise) / 2;
  }
  void set_gradient(int layer, Site site, double mean_square, double more_noise = 0) {
    SitePrediction& s = at(layer, site);
    s.grad_rms = root(layer, site, mean_square);
    s.spread = std::sqrt(noise_ + more_noise) / 2;
  }
  Index width(Index features) const {
    return options_.finite_width ? features : std::numeric_limits<Index>::max();
  }
  NormMap norm(bool present, Signal& x, double fresh = 1) const {
    return present ? NormMap(config_, x, width(config_.d_model), options_.batch, fresh) : NormMap();
  }
  // The placement's factor on a matrix's variance; `everywhere`: of matrices that few placements scale.
  double gain(const Placement& row, bool everywhere = false) const {
    const bool applies = config_.init.placement_gain && (!everywhere || row.gain_everywhere);
    return applies ? std::pow(row.init_gain.of(config_.n_layer), 2) : 1;
  }
  double variance(Index out, Index in) const {
    return std::pow(initial_std(config_.init, real(out), real(in)), 2);
  }

  double embedding_variance() const {
    return std::pow(config_.init.embed_std, 2) * gain(*rows_[0].attn, true);
  }
  // C or F times the variance of an entry of the matrix that writes the stream.
  double output_scale(const Placement& row, Index features) const {
    return real(features) * gain(row) * variance(config_.d_model, features) *
           std::pow(residual_factor(config_), 2);
  }

  void embed() {
    x_ = embedded(config_, embedding_variance(), text_, sequences_);
    x_.wobble = x_.length = 2;  // as of every Gaussian
    x_.noise = 2 * x_.kernel.likeness() / real(config_.d_model);
    norm(rows_[0].attn->embed_norm, x_);
    x0_ = x_;
    set_value(0, Site::stream, x_);
    describe_layer(0);
  }

  void describe_layer(int layer) {
    LayerPrediction& out = result_.layers[layer];
    const Kernel& k = x_.kernel;
    for (Index t = 1; t < T_; ++t) {
      for (Index s = 0; s < t; ++s)
        out.similarity += k(t, s) / std::sqrt(k(t, t) * k(s, s)) / (real(T_) * real(T_ - 1) / 2);
    }
    for (Index t = 0; t < T_; ++t)
      out.share += x_.share[t] / x0_.share[t] * std::sqrt(x0_.kernel(t, t) / k(t, t)) / real(T_);
  }

  // Relative variance from seed to seed: by a branch's matrices, and by the product of stream and branch.
  double fresh_noise(const Sublayer& f) const {
    return (f.is_ffn ? 5 / real(config_.d_ff) : 2 / real(config_.d_model)) + 2 / real(config_.d_model);
  }
  double cross_noise(const Sublayer& f) const { return 4 * f.share * (1 - f.share) / real(config_.d_model); }

  // y = N_out(alpha x + a N_branch(F(s N_in(x)))).
  void forward(Sublayer f) {
    const Placement& row = *f.row;
    f.alpha = config_.residual ? row.alpha.of(config_.n_layer) : 0;
    f.branch = branch_scale_of(config_, row).start;
    f.input_scale = row.input_scale.of(f.layer);
    Signal y = x_;
    f.norm_in = norm(row.norm_in, y);
    y.kernel *= f.input_scale * f.input_scale;
    set_value(f.layer, f.site(Site::attn_in, Site::ffn_in), y);
    f.is_ffn ? feed_forward(f, y) : attention(f, y);
    set_value(f.layer, f.site(Site::attn_out, Site::ffn_out), y);
    y.mean.assign(y.mean.size(), 0);
    y.share.assign(y.share.size(), 0);
    y.bent = y.excess = 0;  // Gaussian, as a sum over many features
    f.norm_branch = norm(row.norm_branch, y);
    y.kernel *= f.branch * f.branch;

    const double added = y.mean_square(), kept = f.alpha * f.alpha * x_.mean_square();
    const double total = std::pow(kept + added, 2), both = 4 + 2 * std::sqrt(x_.length * y.length);
    x_.wobble = (kept * kept * x_.wobble + kept * added * both + added * added * y.wobble) / total;
    x_.length = std::pow(kept * std::sqrt(x_.length) + added * std::sqrt(y.length), 2) / total;
    const double like = x_.kernel.likeness();
    (x_.kernel *= f.alpha * f.alpha) += y.kernel;
    for (Index t = 0; t < N_; ++t) {
      x_.mean[t] *= f.alpha;
      x_.share[t] *= f.alpha;
    }
    if (row.block_skip && f.is_ffn && config_.residual) {
      // x = c * block input + what is independent of it; both are in the sum.
      const Signal& b = block_input_;
      for (Index t = 0; t < N_; ++t) {
        f.skip.push_back(x_.share[t] / b.share[t]);
        x_.mean[t] += b.mean[t];
        x_.share[t] += b.share[t];
      }
      x_.kernel += Kernel(N_, [&](Index t, Index s) { return (1 + f.skip[t] + f.skip[s]) * b.kernel(t, s); });
    }
    f.share = added / x_.mean_square();
    x_.bent *= 1 - f.share;
    x_.excess *= std::pow(1 - f.share, 2);
    x_.noise = std::pow(1 - f.share, 2) * x_.noise + f.share * f.share * y.noise + cross_noise(f) * like;
    // A branch passes on the stream's noise as it does its first matrices', and adds its own matrices'. Of a
    // sum with the block's input, both parts have the noise that reached the block, one has attention's.
    double& noise = result_.amplification;
    const double skipped =
        f.skip.empty() ? noise : block_noise_ + (noise - block_noise_) * kept / (x_.mean_square() - added);
    noise = (1 - f.share) * skipped + f.share * (f.matrices + noise * (f.matrices - 1));
    const bool at_head = f.is_ffn && f.layer == config_.n_layer && !config_.final_norm;
    f.norm_out = norm(row.norm_out, x_, at_head ? 1 : f.share);
    set_value(f.layer, f.site(Site::stream_mid, Site::stream), x_);
    sublayers_.push_back(std::move(f));
  }

  void attention(Sublayer& f, Signal& x) {
    const double scale = real(config_.d_model) * variance(config_.d_model, config_.d_model);
    f.out = output_scale(*f.row, config_.d_model);
    f.attention = AttentionMap(x.kernel, {.query = scale * gain(*f.row, true),
                                          .value = scale * gain(*f.row),
                                          .qk_norm = config_.qk_norm || config_.qkv_norm,
                                          .value_norm = config_.qkv_norm,
                                          .rope = config_.position == Position::rope,
                                          .head_dim = config_.d_model / config_.n_head,
                                          .cell_growth = options_.cell_growth,
                                          .finite_width = options_.finite_width,
                                          .sequences = sequences_});
    LayerPrediction& layer = result_.layers[f.layer];
    layer.entropy = f.attention.entropy;
    layer.score_std = f.attention.score_std;
    layer.max_score = layer.score_std * std::sqrt(2 * std::log(real(T_)));
    if (!(layer.score_std <= saturated))
      refuse("predict", "no prediction: in block ", f.layer,
             " scores of attention have a standard deviation of ", layer.score_std,
             ", and a saturated softmax has no mean gradient; the limit is ", saturated,
             "; try qk_norm, or a placement with norms before attention");
    // A head's features share its weights: over the tokens they are no Gaussian process of one kernel.
    const double bent = norm_row(config_.norm).non_causal() ? 1 : 0;
    const double passed = config_.qkv_norm ? 0 : 1;  // of what |x|^2 varies
    x = {f.attention.forward(), zeros_, zeros_, x.noise, passed * (2 + x.wobble), passed * x.length, bent};
    f.matrices = 2 + 2 * f.attention.score_response / x.mean_square();  // v and o; q and k by the scores
    f.norm_inner = norm(has_inner_norm(config_, *f.row), x);
    x.kernel *= f.out;
    x.wobble += 2;
    x.noise += fresh_noise(f) * x.kernel.likeness();
  }

  void feed_forward(Sublayer& f, Signal& x) {
    const double C = real(config_.d_model), F = real(config_.d_ff);
    f.in = C * gain(*f.row) * variance(config_.d_ff, config_.d_model);
    f.out = output_scale(*f.row, config_.d_ff);
    Kernel argument = x.kernel;
    argument *= f.in;
    Response hidden = hidden_response(config_.activation, argument);
    x = {std::move(hidden.value), std::move(hidden.mean), zeros_, x.noise, 5 + x.wobble * F / C, x.length, 1};
    const double fresh = fresh_noise(f) * x.kernel.likeness(), second = 2 / C * x.kernel.likeness();
    x.noise += fresh - second;
    set_value(f.layer, Site::ffn_hidden, x);
    x.noise += second;
    if (has_inner_norm(config_, *f.row) && norm_row(config_.norm).has_statistics()) {
      f.norm_inner = NormMap(config_, x, width(config_.d_ff), options_.batch);
    } else if (has_inner_norm(config_, *f.row)) {
      hidden = normed_hidden(config_, argument, f.inner_slope);
      x.kernel = std::move(hidden.value);
    }
    f.slope = std::move(hidden.slope);
    double through = 0;  // what noise in the first matrices becomes, over the same noise
    for (Index t = 0; t < T_; ++t) through += argument(t, t) * f.slope(t, t) / real(T_);
    f.matrices = 1 + f.norm_inner.inverse * through / x.mean_square();
    x.kernel *= f.out;
    x.wobble = 2 + x.wobble * C / F;
  }

  // The gradient's kernel after the last block.
  Kernel head() {
    const int last = static_cast<int>(config_.n_layer) + 1;
    const NormMap final_norm = norm(config_.final_norm, x_);
    const double untied = variance(text_.vocabulary, config_.d_model) * gain(*rows_[0].attn, true);
    HeadPrediction head =
        predict_head(x_, config_.d_model, config_.tie_embeddings ? embedding_variance() : untied,
                     config_.tie_embeddings, tokens_, text_);
    for (Index t = 0; options_.finite_width && t < N_; ++t) {
      head.gradient(t, t) += head.along[t];
      head.projection[t] += head.along[t];
    }
    noise_ = 2 / real(config_.d_model);
    set_value(last, Site::final, x_);
    at(last, Site::logits).rms = std::sqrt(head.logits);
    at(last, Site::logits).rms_spread =
        std::sqrt(x_.noise + 2 * x_.kernel.likeness() / real(text_.vocabulary)) / 2;
    set_gradient(last, Site::final, head.gradient.mean_square());
    set_gradient(last, Site::logits, head.logits_gradient);
    result_.loss = head.loss;
    const double read = head.gradient.mean_square();
    // The norm that made what the head reads takes out of the gradient what lies along it.
    if (norm_row(config_.norm).has_statistics() && !norm_row(config_.norm).non_causal()) {
      for (Index t = 0; t < N_; ++t)
        head.gradient(t, t) -= std::min(head.projection[t], head.gradient(t, t) * 0.9);
    }
    Kernel gradient = final_norm.backward(head.gradient);
    set_gradient(last - 1, Site::stream, final_norm.is_identity() ? read : gradient.mean_square());
    return gradient;
  }

  // From the gradient of the sublayer's y to that of its x.
  Kernel backward(const Sublayer& f, const Kernel& gradient) {
    const double C = real(config_.d_model), F = real(config_.d_ff);
    noise_ += cross_noise(f) + fresh_noise(f) * f.share * f.share;
    const Kernel sum = f.norm_out.backward(gradient);
    Kernel dy = sum;
    dy *= f.branch * f.branch;
    dy = f.norm_branch.backward(dy);
    set_gradient(f.layer, f.site(Site::attn_out, Site::ffn_out), dy.mean_square());
    // Back through the last matrix, to C (attention) or F features.
    dy *= f.is_ffn ? C / F * f.out : f.out;
    dy = f.norm_inner.backward(dy);
    if (f.is_ffn) {
      set_gradient(f.layer, Site::ffn_hidden, f.inner_slope * dy.mean_square());
      (dy *= f.slope) *= F / C * f.in;
    } else {
      dy = f.attention.backward(dy);
    }
    set_gradient(f.layer, f.site(Site::attn_in, Site::ffn_in), dy.mean_square(), fresh_noise(f));
    dy *= f.input_scale * f.input_scale;
    Kernel dx = sum;
    (dx *= f.alpha * f.alpha) += f.norm_in.backward(dy);
    if (f.is_ffn) {
      set_gradient(f.layer, Site::stream_mid, dx.mean_square());
      // The block's input receives the sum's gradient twice: as it is, and within that of this x.
      if (!f.skip.empty())
        block_skip_ = Kernel(N_, [&](Index t, Index s) { return (1 + f.skip[t] + f.skip[s]) * sum(t, s); });
    } else {
      dx += std::exchange(block_skip_, Kernel(N_));
      set_gradient(f.layer - 1, Site::stream, dx.mean_square());
    }
    // Without a norm or scale in between, F reads the stream itself.
    if (f.norm_in.is_identity() && f.input_scale == 1)
      set_gradient(f.layer, f.site(Site::attn_in, Site::ffn_in), dx.mean_square());
    return dx;
  }
};

}  // namespace

Prediction predict(const ModelConfig& config, double tokens, const TextStatistics& text,
                   const TheoryOptions& options) {
  if (config.context > longest_context)
    refuse("predict", "no prediction: model.context is ", config.context, "; at most ", longest_context);
  return Recursion(config, tokens, text, options).run();
}

}  // namespace normscope
