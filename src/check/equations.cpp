// Every site of a pass against its equation, written out once more in plain loops.
//
// Deliberately a second reading of the formulas: nothing here comes from the placement table, the norm table
// or the kernels. Each equation takes the pass's own values of the sites before it, so an error is shown
// where it arises.
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

double squared(double x) { return x * x; }

class Equations {
 public:
  Equations(const Model<double>& model, const TokenBatch& batch)
      : model_(model), config_(model.config()), batch_(batch), rows_(std::ssize(batch.tokens)) {}

  void check(const SiteCopies<double>& sites, double loss);

  Worst worst;

 private:
  std::size_t at(Index row, Index col, Index cols) const {
    return static_cast<std::size_t>(row * cols + col);
  }
  const double* parameter(int index) const {
    return index == no_parameter ? nullptr : model_.parameters.at(model_.layout()[index]);
  }
  void expect(const SiteCopies<double>& sites, Place place, const Numbers& want) {
    worst.add(relative_distance(sites.value(place).data, want), text(place.layer, '.', name_of(place.site)));
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
    const Index C = config_.d_model, T = batch_.context, width = C / config_.norm_groups;
    const double *gain = parameter(p.weight), *bias = parameter(p.bias);
    // The number of the group that element (row, c) is normalised with.
    const auto group = [&](Index row, Index c) -> Index {
      switch (config_.norm) {
        case NormKind::batchnorm:
          return c;
        case NormKind::instancenorm:
          return row / T * C + c;
        case NormKind::groupnorm:
          return row * config_.norm_groups + c / width;
        default:
          return row;
      }
    };
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
    each([&](std::size_t i, std::size_t g, Index) { variance[g] += squared(x[i] - mean[g]) / count[g]; });
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

  Numbers attention(const Numbers& in, const BlockParameters& p) const;
  Numbers hidden(const Numbers& in, const BlockParameters& p) const;
  Numbers embedded() const;
  double cross_entropy(const Numbers& logits) const;

  const Model<double>& model_;
  const ModelConfig& config_;
  const TokenBatch batch_;
  const Index rows_;
};

// Causal attention: softmax over the keys up to the query of q k / sqrt(D), with qk_norm and rope on both.
Numbers Equations::attention(const Numbers& in, const BlockParameters& p) const {
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
        for (Index d = 0; d < D; ++d) square += squared(x[d]) / static_cast<double>(D);
        for (Index d = 0; d < D; ++d) x[d] *= gain[d] / std::sqrt(square + config_.norm_eps);
      }
      for (Index d = 0; d < D / 2 && config_.position == Position::rope; ++d) {
        const double angle = static_cast<double>(row % T) *
                             std::pow(10000.0, -2 * static_cast<double>(d) / static_cast<double>(D));
        const double first = x[d], second = x[d + D / 2];
        x[d] = first * std::cos(angle) - second * std::sin(angle);
        x[d + D / 2] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  });
  parallel_each(rows_, [&](Index row) {
    const Index first = row / T * T;
    Numbers weight(static_cast<std::size_t>(T));
    for (Index h = 0; h < H; ++h) {
      double total = 0, top = -INFINITY;
      for (Index key = first; key <= row; ++key) {
        double& score = weight[static_cast<std::size_t>(key - first)];
        score = 0;
        for (Index d = 0; d < D; ++d) score += head_of(row, 0, h)[d] * head_of(key, 1, h)[d];
        score /= std::sqrt(static_cast<double>(D));
        top = std::max(top, score);
      }
      for (Index key = first; key <= row; ++key) {
        double& w = weight[static_cast<std::size_t>(key - first)];
        w = std::exp(w - top);
        total += w;
      }
      for (Index key = first; key <= row; ++key) {
        const double share = weight[static_cast<std::size_t>(key - first)] / total;
        for (Index d = 0; d < D; ++d) out[at(row, h * D + d, C)] += share * head_of(key, 2, h)[d];
      }
    }
  });
  return times(out, p.attn_out);
}

// sigma(x W_in), or silu(x W_gate) x W_in.
Numbers Equations::hidden(const Numbers& in, const BlockParameters& p) const {
  Numbers y = times(in, p.ffn_in);
  const Numbers gate = config_.activation == Activation::swiglu ? times(in, p.ffn_gate) : Numbers();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double x = y[i];
    switch (config_.activation) {
      case Activation::relu:
        y[i] = x > 0 ? x : 0;
        break;
      case Activation::gelu:
        y[i] = x / 2 * std::erfc(-x / std::numbers::sqrt2);
        break;
      case Activation::gelu_tanh:
        y[i] = x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        break;
      case Activation::silu:
        y[i] = x / (1 + std::exp(-x));
        break;
      case Activation::swiglu:
        y[i] = gate[i] / (1 + std::exp(-gate[i])) * x;
        break;
    }
  }
  return y;
}

// Token and position; with peri in block 1 their norm.
Numbers Equations::embedded() const {
  const Index C = config_.d_model, T = batch_.context;
  const double *tokens = parameter(model_.layout().token_embedding),
               *positions = parameter(model_.layout().position_embedding);
  Numbers x(static_cast<std::size_t>(rows_ * C));
  for (Index row = 0; row < rows_; ++row) {
    for (Index c = 0; c < C; ++c) {
      const double angle = static_cast<double>(row % T) *
                           std::pow(10000.0, -2 * static_cast<double>(c / 2) / static_cast<double>(C));
      double& value = x[at(row, c, C)];
      value = tokens[batch_.tokens[static_cast<std::size_t>(row)] * C + c];
      if (config_.position == Position::learned) value += positions[row % T * C + c];
      if (config_.position == Position::sinusoidal) value += c % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return placement(1) == peri ? normalised(x, model_.layout().embed_norm) : x;
}

// Mean of -log softmax(logits)[target].
double Equations::cross_entropy(const Numbers& logits) const {
  const Index V = std::ssize(logits) / rows_;
  double total = 0;
  for (Index row = 0; row < rows_; ++row) {
    double top = -INFINITY, sum = 0;
    for (Index v = 0; v < V; ++v) top = std::max(top, logits[at(row, v, V)]);
    for (Index v = 0; v < V; ++v) sum += std::exp(logits[at(row, v, V)] - top);
    total += top + std::log(sum) - logits[at(row, batch_.targets[static_cast<std::size_t>(row)], V)];
  }
  return total / static_cast<double>(rows_);
}

void Equations::check(const SiteCopies<double>& sites, double loss) {
  expect(sites, {0, Site::stream}, embedded());
  const ParameterLayout& layout = model_.layout();
  const int last = static_cast<int>(config_.n_layer);
  for (int l = 1; l <= last; ++l) {
    const BlockParameters& p = layout.blocks[static_cast<std::size_t>(l - 1)];
    const auto value = [&](Site site) -> const Numbers& { return sites.value({l, site}).data; };
    const Numbers& x = sites.value({l - 1, Site::stream}).data;
    expect(sites, {l, Site::attn_in}, input(l, x, p.attn_norm));
    expect(sites, {l, Site::attn_out}, attention(value(Site::attn_in), p));
    expect(sites, {l, Site::stream_mid},
           sum(l, x, value(Site::attn_out), p.attn_norm, p.attn_post_norm, p.attn_scale));
    const Numbers& mid = value(Site::stream_mid);
    expect(sites, {l, Site::ffn_in}, input(l, mid, p.ffn_norm));
    expect(sites, {l, Site::ffn_hidden}, hidden(value(Site::ffn_in), p));
    expect(sites, {l, Site::ffn_out}, times(value(Site::ffn_hidden), p.ffn_out));
    expect(sites, {l, Site::stream},
           sum(l, mid, value(Site::ffn_out), p.ffn_norm, p.ffn_post_norm, p.ffn_scale));
  }
  const Numbers& stream = sites.value({last, Site::stream}).data;
  expect(sites, {last + 1, Site::final}, config_.final_norm ? normalised(stream, layout.final_norm) : stream);
  expect(sites, {last + 1, Site::logits},
         times(sites.value({last + 1, Site::final}).data, {layout.head, no_parameter}));
  const double want = cross_entropy(sites.value({last + 1, Site::logits}).data);
  worst.add(std::abs(loss - want) / std::abs(want), "loss");
}

}  // namespace

void prove_equations(const Subject& subject) {
  const ModelConfig config = without_dropout(subject.config.model);
  Trial model(subject, config);
  const TrialBatch batch = affordable_batch(subject, 5e9);  // plain loops are slow
  SiteCopies<double> sites;
  const double loss = model.loss_and_gradients(batch.view(), 1, {}, &sites);
  Equations equations(model, batch.view());
  equations.check(sites, loss);
  subject.report({"every site equals its equation, written out in plain loops", equations.worst.error,
                  identity_limit, equations.worst.place});
}

}  // namespace normscope
