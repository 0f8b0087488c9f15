// Every site of a pass against its equation, written out once more in plain loops.
//
// Deliberately a second reading of the formulas: nothing here comes from the placement table, the norm table
// or the kernels. Each equation takes the pass's own values of the sites before it, so an error is shown
// where it arises.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "check/trial.h"
#include "config/names.h"
#include "core/parallel.h"

namespace normscope {
namespace {

using enum PlacementKind;
using Numbers = std::vector<double>;

class Equations {
 public:
  Equations(const Model<double>& model, const TokenBatch& batch)
      : model_(model), config_(model.config()), batch_(batch), rows_(std::ssize(batch.tokens)) {}

  // Every site and the loss, each from the sites before it as `pass` has them.
  std::vector<Tensor> of(const std::vector<Tensor>& pass) const;

 private:
  std::size_t at(Index row, Index col, Index cols) const {
    return static_cast<std::size_t>(row * cols + col);
  }
  // Of a rotary or sinusoidal position, pair by pair of `width` features.
  static double angle(Index position, Index pair, Index width) {
    const double share = 2 * static_cast<double>(pair) / static_cast<double>(width);
    return static_cast<double>(position) * std::pow(10000.0, -share);
  }
  const double* parameter(int index) const {
    return index == no_parameter ? nullptr : model_.parameters.at(model_.layout()[index]);
  }

  // x (N, in) W^T (in, out) + b.
  Numbers times(const Numbers& x, const LinearParameters& p) const {
    const Parameter& weight = model_.layout()[p.weight];
    const Index out = weight.shape[0], in = weight.shape[1];
    const double *w = parameter(p.weight), *b = parameter(p.bias);
    Numbers y(static_cast<std::size_t>(rows_ * out));
    parallel_each(rows_, [&](Index row) {
      for (Index o = 0; o < out; ++o) {
        double sum = b != nullptr ? b[o] : 0;
        for (Index i = 0; i < in; ++i) sum += x[at(row, i, in)] * w[o * in + i];
        y[at(row, o, out)] = sum;
      }
    });
    return y;
  }

  // The config's norm of x (N, C): statistics over whatever is normalised together, gain, bias.
  Numbers normalised(const Numbers& x, const NormParameters& p) const {
    const Index C = config_.d_model;
    const double *gain = parameter(p.weight), *bias = parameter(p.bias);
    const auto group = [&](Index row, Index c) { return norm_group(config_, batch_.context, row, c); };
    if (config_.norm == NormKind::none) return x;
    const auto groups = static_cast<std::size_t>(group(rows_ - 1, C - 1) + 1);
    Numbers count(groups), mean(groups), variance(groups), y(x.size());
    const auto each = [&](auto visit) {
      for (Index row = 0; row < rows_; ++row) {
        for (Index c = 0; c < C; ++c) visit(at(row, c, C), static_cast<std::size_t>(group(row, c)), c);
      }
    };
    each([&](std::size_t, std::size_t g, Index) { ++count[g]; });
    if (config_.norm != NormKind::rmsnorm) {
      each([&](std::size_t i, std::size_t g, Index) { mean[g] += x[i] / count[g]; });
    }
    each([&](std::size_t i, std::size_t g, Index) { variance[g] += std::pow(x[i] - mean[g], 2) / count[g]; });
    each([&](std::size_t i, std::size_t g, Index c) {
      const double eps = config_.norm_eps;
      const double sigma =
          config_.norm_eps_outside ? std::sqrt(variance[g]) + eps : std::sqrt(variance[g] + eps);
      const double z =
          config_.norm == NormKind::dyt ? std::tanh(*parameter(p.alpha) * x[i]) : (x[i] - mean[g]) / sigma;
      y[i] = (gain != nullptr ? gain[c] : 1) * z + (bias != nullptr ? bias[c] : 0);
    });
    return y;
  }

  // The placement of block l, by its name.
  PlacementKind placement(Index l) const {
    const std::vector<PlacementKind>& written = config_.norm_placement;
    if (written.size() > 1) return written[static_cast<std::size_t>(l - 1)];
    if (written[0] != mix) return written[0];
    const double post_blocks = config_.mix_post_fraction * static_cast<double>(config_.n_layer);
    return static_cast<double>(l) < post_blocks + 1 - 1e-9 ? post : pre;
  }

  // What the sublayer of block l reads of the stream x.
  Numbers input(Index l, const Numbers& x, const NormParameters& norm) const {
    const PlacementKind kind = placement(l);
    const bool normed = kind == pre || kind == pre_scaled || kind == sandwich || kind == peri;
    Numbers in = normed ? normalised(x, norm) : x;
    if (kind == pre_scaled) {
      for (double& value : in) value /= std::sqrt(static_cast<double>(l));
    }
    return in;
  }

  // The stream after it: x, what the sublayer returned (F), its norms N and N2, its scale a.
  Numbers sum(Index l, const Numbers& x, Numbers F, const NormParameters& N, const NormParameters& N2,
              int a) const {
    const PlacementKind kind = placement(l);
    double alpha = 1;
    if (kind == sandwich || kind == peri) F = normalised(F, N2);
    if (kind == res_post) F = normalised(F, N);
    if (kind == deepnorm) alpha = std::pow(2 * static_cast<double>(config_.n_layer), 0.25);
    if (kind == rezero) {
      for (double& value : F) value *= *parameter(a);
    }
    for (std::size_t i = 0; i < F.size() && config_.residual; ++i) F[i] += alpha * x[i];
    return kind == post || kind == deepnorm ? normalised(F, N) : F;
  }

  // Causal attention: softmax over the keys up to the query of q k / sqrt(D), with qk_norm and rope on both.
  Numbers attention(const Numbers& in, const BlockParameters& p) const {
    const Index C = config_.d_model, H = config_.n_head, D = C / H, T = batch_.context;
    Numbers qkv = times(in, p.qkv), out(in.size());
    const auto head_of = [&](Index row, Index third, Index h) {
      return &qkv[at(row, third * C + h * D, 3 * C)];
    };
    parallel_each(rows_, [&](Index row) {
      for (Index h = 0; h < 2 * H; ++h) {  // queries and keys
        double* x = head_of(row, h / H, h % H);
        if (config_.qk_norm) {
          const double* gain = parameter(h < H ? p.q_norm : p.k_norm);
          double square = 0;
          for (Index d = 0; d < D; ++d) square += x[d] * x[d] / static_cast<double>(D);
          for (Index d = 0; d < D; ++d) x[d] *= gain[d] / std::sqrt(square + config_.norm_eps);
        }
        for (Index d = 0; d < D / 2 && config_.position == Position::rope; ++d) {
          const double turn = angle(row % T, d, D), first = x[d], second = x[d + D / 2];
          x[d] = first * std::cos(turn) - second * std::sin(turn);
          x[d + D / 2] = second * std::cos(turn) + first * std::sin(turn);
        }
      }
    });
    parallel_each(rows_, [&](Index row) {
      for (Index h = 0; h < H; ++h) {
        Numbers scores;
        double total = 0, *sum = &out[at(row, h * D, C)];
        for (Index key = row / T * T; key <= row; ++key) {
          double& score = scores.emplace_back(0);
          for (Index d = 0; d < D; ++d) score += head_of(row, 0, h)[d] * head_of(key, 1, h)[d];
          score /= std::sqrt(static_cast<double>(D));
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        for (Index key = 0; key < std::ssize(scores); ++key) {
          const double weight = std::exp(scores[static_cast<std::size_t>(key)] - top);
          total += weight;
          for (Index d = 0; d < D; ++d) sum[d] += weight * head_of(row / T * T + key, 2, h)[d];
        }
        for (Index d = 0; d < D; ++d) sum[d] /= total;
      }
    });
    return times(out, p.attn_out);
  }

  // sigma(x W_in), or silu(x W_gate) x W_in.
  Numbers hidden(const Numbers& in, const BlockParameters& p) const {
    using enum Activation;
    const auto activated = [kind = config_.activation](double x) {
      if (kind == relu) return x > 0 ? x : 0;
      if (kind == gelu) return x / 2 * std::erfc(-x / std::numbers::sqrt2);
      if (kind == gelu_tanh)
        return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      return x / (1 + std::exp(-x));
    };
    Numbers y = times(in, p.ffn_in);
    const Numbers gate = config_.activation == swiglu ? times(in, p.ffn_gate) : Numbers();
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = gate.empty() ? activated(y[i]) : activated(gate[i]) * y[i];
    return y;
  }

  // Token and position; with peri in block 1 their norm.
  Numbers embedded() const {
    const Index C = config_.d_model, T = batch_.context;
    const double *tokens = parameter(model_.layout().token_embedding),
                 *positions = parameter(model_.layout().position_embedding);
    Numbers x;
    for (Index row = 0; row < rows_; ++row) {
      for (Index c = 0; c < C; ++c) {
        double& value = x.emplace_back(tokens[batch_.tokens[static_cast<std::size_t>(row)] * C + c]);
        const double turn = angle(row % T, c / 2, C);
        if (config_.position == Position::learned) value += positions[row % T * C + c];
        if (config_.position == Position::sinusoidal) value += c % 2 == 0 ? std::sin(turn) : std::cos(turn);
      }
    }
    return placement(1) == peri ? normalised(x, model_.layout().embed_norm) : x;
  }

  // Mean of -log softmax(logits)[target].
  double cross_entropy(const Numbers& logits) const {
    const Index V = std::ssize(logits) / rows_;
    double total = 0;
    for (Index row = 0; row < rows_; ++row) {
      const double* z = &logits[at(row, 0, V)];
      const double top = *std::max_element(z, z + V);
      double sum = 0;
      for (Index v = 0; v < V; ++v) sum += std::exp(z[v] - top);
      total += top + std::log(sum) - z[batch_.targets[static_cast<std::size_t>(row)]];
    }
    return total / static_cast<double>(rows_);
  }

  const Model<double>& model_;
  const ModelConfig& config_;
  const TokenBatch batch_;
  const Index rows_;
};

std::vector<Tensor> Equations::of(const std::vector<Tensor>& pass) const {
  const ParameterLayout& layout = model_.layout();
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
    const BlockParameters& p = layout.blocks[static_cast<std::size_t>(l - 1)];
    const Numbers &x = value(l - 1, Site::stream), &mid = value(l, Site::stream_mid);
    expect(l, Site::attn_in, input(l, x, p.attn_norm));
    expect(l, Site::attn_out, attention(value(l, Site::attn_in), p));
    expect(l, Site::stream_mid,
           sum(l, x, value(l, Site::attn_out), p.attn_norm, p.attn_post_norm, p.attn_scale));
    expect(l, Site::ffn_in, input(l, mid, p.ffn_norm));
    expect(l, Site::ffn_hidden, hidden(value(l, Site::ffn_in), p));
    expect(l, Site::ffn_out, times(value(l, Site::ffn_hidden), p.ffn_out));
    expect(l, Site::stream, sum(l, mid, value(l, Site::ffn_out), p.ffn_norm, p.ffn_post_norm, p.ffn_scale));
  }
  const Numbers& stream = value(last, Site::stream);
  expect(last + 1, Site::final, config_.final_norm ? normalised(stream, layout.final_norm) : stream);
  expect(last + 1, Site::logits, times(value(last + 1, Site::final), {layout.head, no_parameter}));
  all.push_back({Tensor::loss, "loss", {cross_entropy(value(last + 1, Site::logits))}});
  return all;
}

}  // namespace

Outcome equations(const Subject& subject) {
  Trial<double> model(subject, subject.config.model);
  const TrialBatch batch = affordable_batch(subject, 2e9);  // plain loops are slow
  const std::vector<Tensor> pass = tensors_of(model, batch.view());
  const Equations equations(model, batch.view());
  const std::vector<Tensor> want = equations.of(pass);
  // What rounding of the sites that an equation reads may do to its result.
  std::vector<Tensor> moved = pass;
  const RandomStream stream(1, "noise");
  std::uint64_t draws = 0;
  for (Tensor& t : moved) {
    for (double& x : t.data) x *= 1 + noise_of_double * (2 * stream.uniform(draws++) - 1);
  }
  moved = equations.of(moved);
  Worst worst;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double size = want[i].size(), rounding = moved[i].distance(want[i]) + noise_of_double * size;
    worst.add(want[i].name, tensor_named(pass, want[i].name).distance(want[i]), rounding_margin * rounding,
              size);
  }
  return worst.finding("every site equals its equation, written out in plain loops");
}

}  // namespace normscope
