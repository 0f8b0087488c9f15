// Every site of a pass against its equation.
//
// The equations are a second implementation on purpose: they use neither the tables of placements and norms
// nor the kernels (the naive ones compute the engine's doubles). Each equation starts from the pass's own
// values of earlier sites, so an error shows at the site where it arises.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "check/test_model.h"
#include "core/parallel.h"

namespace normscope {
namespace {

using Numbers = std::vector<double>;

// x becomes exp(x - max x); returns the sum.
double softmax(Numbers& x) {
  const double top = *std::max_element(x.begin(), x.end());
  for (double& value : x) value = std::exp(value - top);
  return std::accumulate(x.begin(), x.end(), 0.0);
}

// The placement of a sublayer ("attn" or "ffn") of block l.
PlacementKind placement(const ModelConfig& config, Index l, const std::string& sublayer) {
  using enum PlacementKind;
  const bool attn = sublayer == "attn";
  const BlockPlacement& block = config.norm_placement[config.norm_placement.size() > 1 ? l - 1 : 0];
  const PlacementKind kind = attn ? block.attn : block.ffn;
  const double post_blocks = config.mix_post_fraction * static_cast<double>(config.n_layer);
  if (kind == mix) return static_cast<double>(l) < post_blocks + 1 - 1e-9 ? post : pre;
  if (kind == hybrid_star && l == 1) return pre;
  if (kind == hybrid || kind == hybrid_star) return attn ? post : none;
  return kind;
}

class Equations {
 public:
  Equations(const Model<double>& model, const Pass& batch)
      : model_(model), config_(model.config()), batch_(batch), rows_(std::ssize(batch.tokens)) {}

  // Every site and the loss, each computed from the earlier sites of `pass`.
  std::vector<Tensor> of(const std::vector<Tensor>& pass) const {
    const int last = static_cast<int>(config_.n_layer);
    std::vector<Tensor> all;
    const auto value = [&](int layer, Site site) -> const Numbers& {
      return tensor_named(pass, site_name({layer, site})).data;
    };
    const auto expect = [&](int layer, Site site, Numbers numbers) {
      all.push_back({Tensor::value, site_name({layer, site}), std::move(numbers)});
    };
    expect(0, Site::stream, embedded());
    for (int l = 1; l <= last; ++l) {
      const std::string block = text("blocks.", l - 1, '.');
      const Numbers &x = value(l - 1, Site::stream), &mid = value(l, Site::stream_mid);
      expect(l, Site::attn_in, sublayer(l, "attn", x, nullptr));
      expect(l, Site::attn_out, attention(l, value(l, Site::attn_in), block));
      expect(l, Site::stream_mid, sublayer(l, "attn", x, &value(l, Site::attn_out)));
      expect(l, Site::ffn_in, sublayer(l, "ffn", mid, nullptr));
      expect(l, Site::ffn_hidden, hidden(value(l, Site::ffn_in), block));
      const Numbers& hidden_now = value(l, Site::ffn_hidden);
      expect(l, Site::ffn_out,
             linear(has_inner_norm(l, "ffn") ? norm(hidden_now, block + "ffn.inner_norm") : hidden_now,
                    block + "ffn.out"));
      expect(l, Site::stream, sublayer(l, "ffn", mid, &value(l, Site::ffn_out)));
    }
    const Numbers& stream = value(last, Site::stream);
    expect(last + 1, Site::final, config_.final_norm ? norm(stream, "final_norm") : stream);
    expect(last + 1, Site::logits,
           linear(value(last + 1, Site::final), config_.tie_embeddings ? "embed.token" : "head"));
    all.push_back({Tensor::loss, "loss", {cross_entropy(value(last + 1, Site::logits))}});
    return all;
  }

 private:
  // The angle of a rotary or sinusoidal position for a pair of `width` features.
  static double angle(Index position, Index pair, Index width) {
    const double share = 2 * static_cast<double>(pair) / static_cast<double>(width);
    return static_cast<double>(position) * std::pow(10000.0, -share);
  }
  const double* parameter(const std::string& name) const {
    const int index = model_.layout().find(name);
    return index == no_parameter ? nullptr : model_.parameters.at(model_.layout()[index]);
  }

  // x (N, in) W^T (in, out) + b.
  Numbers linear(const Numbers& x, const std::string& name) const {
    const Parameter& weight = model_.layout()[model_.layout().find(name + ".weight")];
    const Index out = weight.shape[0], in = weight.shape[1];
    const double *w = model_.parameters.at(weight), *b = parameter(name + ".bias");
    Numbers y(rows_ * out);
    parallel_for(rows_, [&](Index row) {
      for (Index o = 0; o < out; ++o) {
        double sum = b != nullptr ? b[o] : 0;
        for (Index i = 0; i < in; ++i) sum += x[row * in + i] * w[o * in + i];
        y[row * out + o] = sum;
      }
    });
    return y;
  }

  // The config's norm of x (N, C): statistics of each group, gain, bias.
  Numbers norm(const Numbers& x, const std::string& name) const {
    using enum NormKind;
    if (config_.norm == none) return x;
    const Index C = std::ssize(x) / rows_;
    Numbers y(x.size());
    if (const double* alpha = parameter(name + ".alpha"), *shift = parameter(name + ".shift"); alpha) {
      for (std::size_t i = 0; i < x.size(); ++i)
        y[i] = config_.norm == dyt ? std::tanh(*alpha * x[i]) : std::erf(*alpha * x[i] + *shift);
    } else {
      const auto group = [&](Index i) { return norm_group(config_, batch_.context, i / C, i % C, C); };
      const Index n = std::ssize(x);
      Numbers count(group(n - 1) + 1), mean(count), variance(count);
      for (Index i = 0; i < n; ++i) ++count[group(i)];
      for (Index i = 0; i < n && config_.norm != rmsnorm; ++i) mean[group(i)] += x[i] / count[group(i)];
      for (Index i = 0; i < n; ++i)
        variance[group(i)] += std::pow(x[i] - mean[group(i)], 2) / count[group(i)];
      for (Index i = 0; i < n; ++i) {
        const double v = variance[group(i)], eps = config_.norm_eps;
        y[i] = (x[i] - mean[group(i)]) / (config_.norm_eps_outside ? std::sqrt(v) + eps : std::sqrt(v + eps));
      }
    }
    const double *gain = parameter(name + ".weight"), *bias = parameter(name + ".bias");
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = (gain != nullptr ? gain[i % C] : 1) * y[i] + (bias != nullptr ? bias[i % C] : 0);
    return y;
  }

  // The input of a sublayer of block l ("attn" or "ffn") for the stream x or, given the sublayer's output F,
  // the stream after it.
  Numbers sublayer(Index l, const std::string& which, const Numbers& x, const Numbers* F) const {
    using enum PlacementKind;
    const std::string block = text("blocks.", l - 1, '.', which);
    const PlacementKind kind = placement(config_, l, which);
    const double L = static_cast<double>(config_.n_layer);
    const auto N = [&](const Numbers& of) { return norm(of, block + "_norm"); };
    const auto N2 = [&](const Numbers& of) { return norm(of, block + "_post_norm"); };
    const auto times = [](double factor, Numbers of) {
      for (double& value : of) value *= factor;
      return of;
    };
    const double* learned = parameter(block + "_scale");
    const bool by_feature = config_.branch_scale_learned == LearnedScale::vector && kind != rezero;
    const auto join = [&](double alpha, Numbers branch) {  // alpha x + a branch
      for (std::size_t i = 0; i < x.size(); ++i) {
        branch[i] *= learned == nullptr ? expected_branch_scale(config_, l, which)
                                        : learned[by_feature ? i % config_.d_model : 0];
        if (config_.residual) branch[i] += alpha * x[i];
      }
      return branch;
    };
    if (kind == pre || kind == subln) return F ? join(1, *F) : N(x);
    if (kind == pre_scaled) return F ? join(1, *F) : times(1 / std::sqrt(static_cast<double>(l)), N(x));
    if (kind == post) return F ? N(join(1, *F)) : x;
    if (kind == sandwich || kind == peri) return F ? join(1, N2(*F)) : N(x);
    if (kind == res_post) return F ? join(1, N(*F)) : x;
    if (kind == deepnorm) return F ? N(join(std::pow(2 * L, 0.25), *F)) : x;
    if (kind == keel) return F ? N2(join(2 * L, *F)) : N(x);
    if (kind == rezero || kind == none) return F ? join(1, *F) : x;
    fail("check", "no equation of placement ", name_of(kind));
  }

  bool has_inner_norm(Index l, const std::string& sublayer) const {
    return config_.inner_norm || placement(config_, l, sublayer) == PlacementKind::subln;
  }

  // Causal attention: softmax over the keys up to the query of q k / sqrt(D), with qk_norm and rope on both.
  Numbers attention(Index l, const Numbers& in, const std::string& block) const {
    const Index C = config_.d_model, H = config_.n_head, D = C / H, T = batch_.context;
    Numbers qkv = linear(in, block + "attn.qkv"), out(in.size());
    for (Index i = 0; i < rows_ * 3 * H; ++i) {  // every head of queries, keys and values, row by row
      const Index row = i / (3 * H), h = i % (3 * H), third = h / H;
      double* x = &qkv[row * 3 * C + h * D];
      if (config_.qkv_norm || (config_.qk_norm && third < 2)) {
        const double* gain = parameter(text(block, "attn.", "qkv"[third], "_norm.weight"));
        double square = 0;
        for (Index d = 0; d < D; ++d) square += x[d] * x[d] / static_cast<double>(D);
        for (Index d = 0; d < D; ++d) x[d] *= gain[d] / std::sqrt(square + config_.norm_eps);
      }
      for (Index d = 0; d < D / 2 && third < 2 && config_.position == Position::rope; ++d) {
        const double turn = angle(row % T, d, D), first = x[d], second = x[d + D / 2];
        x[d] = first * std::cos(turn) - second * std::sin(turn);
        x[d + D / 2] = second * std::cos(turn) + first * std::sin(turn);
      }
    }
    parallel_for(rows_ * H, [&](Index i) {
      const Index row = i / H, h = i % H;
      const auto part = [&](Index of, Index third) { return &qkv[of * 3 * C + third * C + h * D]; };
      const double* q = part(row, 0);
      Numbers weights;
      for (Index key = row / T * T; key <= row; ++key) {
        const double* k = part(key, 1);
        weights.push_back(std::inner_product(q, q + D, k, 0.0) / std::sqrt(static_cast<double>(D)));
      }
      const double sum = softmax(weights);
      for (Index j = 0; j < std::ssize(weights); ++j) {
        for (Index d = 0; d < D; ++d)
          out[row * C + h * D + d] += weights[j] / sum * part(row / T * T + j, 2)[d];
      }
    });
    return linear(has_inner_norm(l, "attn") ? norm(out, block + "attn.inner_norm") : out, block + "attn.out");
  }

  // sigma(x W_in), or silu(x W_gate) x W_in.
  Numbers hidden(const Numbers& in, const std::string& block) const {
    using enum Activation;
    const auto activated = [kind = config_.activation](double x) {
      if (kind == relu) return x > 0 ? x : 0;
      if (kind == gelu) return x / 2 * std::erfc(-x / std::numbers::sqrt2);
      if (kind == gelu_tanh)
        return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      return x / (1 + std::exp(-x));
    };
    Numbers y = linear(in, block + "ffn.in");
    const Numbers gate = config_.activation == swiglu ? linear(in, block + "ffn.gate") : Numbers();
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = gate.empty() ? activated(y[i]) : activated(gate[i]) * y[i];
    return y;
  }

  // Token and position; with peri in block 1 their norm.
  Numbers embedded() const {
    const Index C = config_.d_model, T = batch_.context;
    const double *tokens = parameter("embed.token.weight"), *positions = parameter("embed.position.weight");
    Numbers x;
    for (Index row = 0; row < rows_; ++row) {
      for (Index c = 0; c < C; ++c) {
        double& value = x.emplace_back(tokens[batch_.tokens[row] * C + c]);
        const double turn = angle(row % T, c / 2, C);
        if (config_.position == Position::learned) value += positions[row % T * C + c];
        if (config_.position == Position::sinusoidal) value += c % 2 == 0 ? std::sin(turn) : std::cos(turn);
      }
    }
    return placement(config_, 1, "attn") == PlacementKind::peri ? norm(x, "embed_norm") : x;
  }

  // Mean of -log softmax(logits)[target].
  double cross_entropy(const Numbers& logits) const {
    const Index V = std::ssize(logits) / rows_;
    double total = 0;
    for (Index row = 0; row < rows_; ++row) {
      Numbers z(&logits[row * V], &logits[row * V] + V);
      const double target = z[batch_.targets[row]] - *std::max_element(z.begin(), z.end());
      total += std::log(softmax(z)) - target;
    }
    return total / static_cast<double>(rows_);
  }

  const Model<double>& model_;
  const ModelConfig& config_;
  const Pass batch_;
  const Index rows_;
};

}  // namespace

Index norm_group(const ModelConfig& config, Index context, Index row, Index c, Index width) {
  using enum NormKind;
  const NormKind norm = config.norm;
  if (norm == layernorm || norm == rmsnorm) return row;
  if (norm == groupnorm) return row * config.norm_groups + c / (width / config.norm_groups);
  if (norm == instancenorm) return row / context * width + c;
  if (norm == batchnorm) return c;
  fail("check", "norm ", name_of(norm), " has no statistics here");
}

double expected_init_gain(const ModelConfig& config, const Parameter& p, bool query_or_key) {
  const double L = static_cast<double>(config.n_layer);
  const Index block = p.layer >= 1 && p.layer <= config.n_layer ? p.layer : 1;
  const PlacementKind kind = placement(config, block, p.name.find(".ffn.") == p.name.npos ? "attn" : "ffn");
  if (block != p.layer || query_or_key) return 1;
  return kind == PlacementKind::deepnorm ? std::pow(8 * L, -0.25)
         : kind == PlacementKind::subln  ? std::sqrt(std::log(2 * L))
                                         : 1;
}

double expected_branch_scale(const ModelConfig& config, Index block, const std::string& sublayer) {
  if (placement(config, block, sublayer) == PlacementKind::rezero) return 0;
  const auto [factor, exponent] = config.branch_scale;
  return factor * std::pow(static_cast<double>(config.n_layer), exponent);
}

Outcome equations(const Context& given) {
  TestModel<double> model(given, given.config.model);
  const TestBatch batch = small_batch(given, 2e9);  // plain loops are slow
  const std::vector<Tensor> pass = tensors_of(model, batch.view());
  const Equations equations(model, batch.view());
  const std::vector<Tensor> want = equations.of(pass);
  Worst worst;
  for (const Tensor& t : want) {
    const double size = t.size();
    worst.add(t.name, tensor_named(pass, t.name).distance(t), identity_limit * size, size);
  }
  return worst.result("every site equals its equation, written out in plain loops");
}

}  // namespace normscope
