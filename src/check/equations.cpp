// Every site of a pass against its equation.
//
// The equations are a second implementation on purpose: they use no kernel (the naive ones compute the
// engine's doubles), and of the tables of placements and norms only what is no arithmetic: which norms have
// running statistics or can be detached. Each equation starts from the pass's own
// values of earlier sites, so an error shows at the site where it arises.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "check/check.h"
#include "check/dual.h"
#include "core/parallel.h"

namespace normscope {
namespace {

// x becomes exp(x - max x); returns the sum.
Dual softmax(Duals& x) {
  const double top = std::max_element(x.begin(), x.end())->value;
  for (Dual& number : x) number = exp(number - top);
  return std::accumulate(x.begin(), x.end(), Dual(0));
}

// The placement of a sublayer ("attn" or "ffn") of block l.
PlacementKind placement(const ModelConfig& config, Index l, const std::string& sublayer) {
  const BlockPlacement& block = config.norm_placement[config.norm_placement.size() > 1 ? l - 1 : 0];
  return (sublayer == "attn" ? block.attn : block.ffn)->kind;
}

// The factor of a sublayer's branch, or the initial value of a learned one.
double branch_scale(const ModelConfig& config, Index l, const std::string& sublayer) {
  if (placement(config, l, sublayer) == PlacementKind::rezero) return 0;
  const DepthFactor& scale = config.branch_scale;
  return scale.factor * std::pow(static_cast<double>(config.n_layer), scale.exponent);
}

// The placement's factor on a matrix's initial values (for qkv, on v's), and 1/sqrt(2L) on the matrices that
// write the stream.
double init_factor(const ModelConfig& config, const Parameter& p) {
  if (p.layer == 0 || p.layer > config.n_layer) return 1;
  const double L = static_cast<double>(config.n_layer);
  const bool is_output = p.name.ends_with(".out.weight");
  if (is_output && config.init.zero_branches) return 0;
  const bool scaled = config.init.residual_scaling && is_output;
  const PlacementKind kind = placement(config, p.layer, p.name.find(".ffn.") == p.name.npos ? "attn" : "ffn");
  double factor = scaled ? 1 / std::sqrt(2 * L) : 1;
  if (kind == PlacementKind::deepnorm) factor *= std::pow(8 * L, -0.25);
  if (kind == PlacementKind::subln) factor *= std::sqrt(std::log(2 * L));
  return factor;
}

// The initial value of each number of a vector.
double first_number(const ModelConfig& config, const Parameter& p) {
  if (p.role == Role::branch_scale)
    return branch_scale(config, p.layer, p.name.ends_with("attn_scale") ? "attn" : "ffn");
  if (p.name.ends_with(".alpha")) return config.norm_alpha;
  return p.is_norm() && p.name.ends_with(".weight") ? 1 : 0;  // a gain; a bias or derf's shift
}

Duals duals(const Numbers& x) { return {x.begin(), x.end()}; }
Numbers values(const Duals& x) {
  Numbers result;
  for (const Dual& number : x) result.push_back(number.value);
  return result;
}

// The equations of a pass. Slopes of their numbers are derivatives along the direction that those of the
// weights give.
struct Equations {
  using Sites = std::map<std::string, Duals>;
  const Model<double>& model;
  const Pass batch;
  Duals weights = duals(model.parameters.all());
  const ModelConfig& config = model.config();
  const Index rows = std::ssize(batch.tokens);

  // Every site and the loss, each computed from the earlier sites of `given`, or from the equations' own if
  // it is null.
  Sites sites(const Sites* given) const {
    const int last = static_cast<int>(config.n_layer);
    Sites all;
    const Sites& pass = given != nullptr ? *given : all;
    const auto name = [](int layer, Site site) { return text("act.", layer, '.', name_of(site)); };
    const auto value = [&](int layer, Site site) -> const Duals& { return pass.at(name(layer, site)); };
    const auto expect = [&](int layer, Site site, Duals x) { all[name(layer, site)] = std::move(x); };
    expect(0, Site::stream, embedded());
    for (int l = 1; l <= last; ++l) {
      const std::string block = text("blocks.", l - 1, '.');
      const Duals& x = value(l - 1, Site::stream);
      expect(l, Site::attn_in, sublayer(l, "attn", x, nullptr));
      expect(l, Site::attn_out, attention(l, value(l, Site::attn_in), block));
      expect(l, Site::stream_mid, sublayer(l, "attn", x, &value(l, Site::attn_out)));
      const Duals& mid = value(l, Site::stream_mid);
      expect(l, Site::ffn_in, sublayer(l, "ffn", mid, nullptr));
      expect(l, Site::ffn_hidden, hidden(value(l, Site::ffn_in), block));
      expect(l, Site::ffn_out, linear(inner(l, "ffn", value(l, Site::ffn_hidden)), block + "ffn.out"));
      expect(l, Site::stream, sublayer(l, "ffn", mid, &value(l, Site::ffn_out)));
    }
    const Duals& stream = value(last, Site::stream);
    expect(last + 1, Site::final, config.final_norm ? norm(stream, "final_norm") : stream);
    expect(last + 1, Site::logits,
           linear(value(last + 1, Site::final), config.tie_embeddings ? "embed.token" : "head"));
    all["loss"] = {cross_entropy(value(last + 1, Site::logits))};
    return all;
  }

  // The angle of a rotary or sinusoidal position for a pair of `width` features.
  static double angle(Index position, Index pair, Index width) {
    const double share = 2 * static_cast<double>(pair) / static_cast<double>(width);
    return static_cast<double>(position) * std::pow(10000.0, -share);
  }
  const Dual* parameter(const std::string& name) const {
    const int index = model.layout().find(name);
    return index == no_parameter ? nullptr : &weights[model.layout()[index].offset];
  }

  // x (N, in) W^T (in, out) + b.
  Duals linear(const Duals& x, const std::string& name) const {
    const Parameter& weight = model.layout()[model.layout().find(name + ".weight")];
    const Index out = weight.shape[0], in = weight.shape[1];
    const Dual *w = &weights[weight.offset], *b = parameter(name + ".bias");
    Duals y(rows * out);
    parallel_for(rows, [&](Index row) {
      for (Index o = 0; o < out; ++o) {
        const Dual* features = &w[o * in];
        y[row * out + o] = std::inner_product(features, features + in, &x[row * in], b ? b[o] : Dual(0));
      }
    });
    return y;
  }

  // The number of the group that element (row, c) of an (N, width) matrix is normalised with.
  Index norm_group(Index row, Index c, Index width) const {
    using enum NormKind;
    if (config.norm == groupnorm) return row * config.norm_groups + c / (width / config.norm_groups);
    if (config.norm == instancenorm) return row / batch.context * width + c;
    return config.norm == batchnorm ? c : row;
  }

  // The mean and the variance of each group of x (N, C): constants, if norms are detached.
  std::pair<Duals, Duals> moments(const Duals& x) const {
    const Index n = std::ssize(x), C = n / rows;
    const auto group = [&](Index i) { return norm_group(i / C, i % C, C); };
    Duals mean(group(n - 1) + 1), variance(mean.size());
    const double count = static_cast<double>(n / std::ssize(mean));
    for (Index i = 0; i < n && config.norm != NormKind::rmsnorm; ++i) mean[group(i)] += x[i] / count;
    for (Index i = 0; i < n; ++i) {
      const Dual deviation = x[i] - mean[group(i)];
      variance[group(i)] += deviation * deviation / count;
    }
    for (std::size_t i = 0; i < mean.size() && is_detached(config); ++i)
      mean[i].slope = variance[i].slope = 0;
    return {mean, variance};
  }

  // The config's norm of x (N, C), times a factor: statistics of each group, gain, bias.
  Duals norm(const Duals& x, const std::string& name, double factor = 1) const {
    using enum NormKind;
    const Index C = std::ssize(x) / rows;
    Duals y = x;
    if (const Dual* alpha = parameter(name + ".alpha"), *shift = parameter(name + ".shift"); alpha) {
      for (std::size_t i = 0; i < x.size(); ++i)
        y[i] = config.norm == dyt ? tanh(*alpha * x[i]) : erf(*alpha * x[i] + *shift);
    } else if (config.norm != none) {
      const auto [mean, variance] = moments(x);
      for (Index i = 0; i < std::ssize(x); ++i) {
        const Index group = norm_group(i / C, i % C, C);
        const Dual v = variance[group], eps = config.norm_eps;
        y[i] = (x[i] - mean[group]) / (config.norm_eps_outside ? sqrt(v) + eps : sqrt(v + eps));
      }
    }
    const Dual *gain = parameter(name + ".weight"), *bias = parameter(name + ".bias");
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = factor * ((gain ? gain[i % C] : 1) * y[i] + (bias ? bias[i % C] : 0));
    return y;
  }

  // The input of a sublayer of block l ("attn" or "ffn") for the stream x or, given the sublayer's output F,
  // the stream after it.
  Duals sublayer(Index l, const std::string& which, const Duals& x, const Duals* F) const {
    using enum PlacementKind;
    const std::string block = text("blocks.", l - 1, '.', which);
    const PlacementKind kind = placement(config, l, which);
    const double L = static_cast<double>(config.n_layer);
    const auto N = [&](const Duals& of, double s = 1) { return norm(of, block + "_norm", s); };
    const auto N2 = [&](const Duals& of) { return norm(of, block + "_post_norm"); };
    const Dual* learned = parameter(block + "_scale");
    const bool by_feature = config.branch_scale_learned == LearnedScale::vector && kind != rezero;
    const auto join = [&](double alpha, Duals branch) {  // alpha x + a branch
      for (std::size_t i = 0; i < x.size(); ++i) {
        branch[i] *= learned == nullptr ? branch_scale(config, l, which)
                                        : learned[by_feature ? i % config.d_model : 0];
        branch[i] *= std::min(model.branch_progress / static_cast<double>(l), 1.0);
        if (config.residual) branch[i] += alpha * x[i];
      }
      return branch;
    };
    if (kind == pre || kind == subln) return F ? join(1, *F) : N(x);
    if (kind == pre_scaled) return F ? join(1, *F) : N(x, 1 / std::sqrt(static_cast<double>(l)));
    if (kind == post) return F ? N(join(1, *F)) : x;
    if (kind == sandwich || kind == peri) return F ? join(1, N2(*F)) : N(x);
    if (kind == res_post) return F ? join(1, N(*F)) : x;
    if (kind == deepnorm) return F ? N(join(std::pow(2 * L, 0.25), *F)) : x;
    if (kind == keel) return F ? N2(join(2 * L, *F)) : N(x);
    if (kind == rezero || kind == none) return F ? join(1, *F) : x;
    fail("check", "no equation of placement ", name_of(kind));
  }

  // The input of a sublayer's output matrix: x, or its inner norm.
  Duals inner(Index l, const std::string& which, const Duals& x) const {
    const bool normed = config.inner_norm || placement(config, l, which) == PlacementKind::subln;
    return normed ? norm(x, text("blocks.", l - 1, '.', which, ".inner_norm")) : x;
  }

  // Causal attention: softmax over the keys up to the query of q k / sqrt(D), with qk_norm and rope on both.
  Duals attention(Index l, const Duals& in, const std::string& block) const {
    const Index C = config.d_model, H = config.n_head, D = C / H, T = batch.context;
    Duals qkv = linear(in, block + "attn.qkv"), out(in.size());
    for (Index i = 0; i < rows * 3 * H; ++i) {  // every head of queries, keys and values, row by row
      const Index row = i / (3 * H), h = i % (3 * H), third = h / H;
      Dual* x = &qkv[row * 3 * C + h * D];
      if (config.qkv_norm || (config.qk_norm && third < 2)) {
        const Dual* gain = parameter(text(block, "attn.", "qkv"[third], "_norm.weight"));
        Dual square = 0;
        for (Index d = 0; d < D; ++d) square += x[d] * x[d] / static_cast<double>(D);
        for (Index d = 0; d < D; ++d) x[d] *= gain[d] / sqrt(square + config.norm_eps);
      }
      for (Index d = 0; d < D / 2 && third < 2 && config.position == Position::rope; ++d) {
        const double turn = angle(row % T, d, D);
        const Dual first = x[d], second = x[d + D / 2];
        x[d] = first * std::cos(turn) - second * std::sin(turn);
        x[d + D / 2] = second * std::cos(turn) + first * std::sin(turn);
      }
    }
    parallel_for(rows * H, [&](Index i) {
      const Index row = i / H, h = i % H;
      const auto part = [&](Index of, Index third) { return &qkv[of * 3 * C + third * C + h * D]; };
      const Dual* q = part(row, 0);
      Duals scores;
      for (Index key = row / T * T; key <= row; ++key)
        scores.push_back(std::inner_product(q, q + D, part(key, 1), Dual(0)) /
                         std::sqrt(static_cast<double>(D)));
      const Dual sum = softmax(scores);
      for (Index j = 0; j < std::ssize(scores); ++j) {
        for (Index d = 0; d < D; ++d)
          out[row * C + h * D + d] += scores[j] / sum * part(row / T * T + j, 2)[d];
      }
    });
    return linear(inner(l, "attn", out), block + "attn.out");
  }

  // sigma(x W_in), or silu(x W_gate) x W_in.
  Duals hidden(const Duals& in, const std::string& block) const {
    using enum Activation;
    const auto activated = [kind = config.activation](Dual x) -> Dual {
      if (kind == relu) return x > 0 ? x : 0;
      if (kind == relu2) return x > 0 ? x * x : 0;
      if (kind == gelu) return x / 2 * erfc(-1 / std::numbers::sqrt2 * x);
      if (kind == gelu_tanh)
        return x / 2 * (1 + tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      const Dual small = exp(x > 0 ? 0 - x : x);  // cannot overflow
      return x * (x > 0 ? 1 : small) / (1 + small);
    };
    Duals y = linear(in, block + "ffn.in");
    const Duals gate = config.activation == swiglu ? linear(in, block + "ffn.gate") : Duals();
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = gate.empty() ? activated(y[i]) : activated(gate[i]) * y[i];
    return y;
  }

  // Token and position, or their norm.
  Duals embedded() const {
    const Index C = config.d_model, T = batch.context;
    const Dual *tokens = parameter("embed.token.weight"), *positions = parameter("embed.position.weight");
    Duals x;
    for (Index row = 0; row < rows; ++row) {
      for (Index c = 0; c < C; ++c) {
        Dual& value = x.emplace_back(tokens[batch.tokens[row] * C + c]);
        const double turn = angle(row % T, c / 2, C);
        if (config.position == Position::learned) value += positions[row % T * C + c];
        if (config.position == Position::sinusoidal) value += c % 2 == 0 ? std::sin(turn) : std::cos(turn);
      }
    }
    const bool normed = config.embed_norm || placement(config, 1, "attn") == PlacementKind::peri;
    return normed ? norm(x, "embed_norm") : x;
  }

  // Mean of -log softmax(logits)[target].
  Dual cross_entropy(const Duals& logits) const {
    const Index V = std::ssize(logits) / rows;
    Dual total = 0;
    for (Index row = 0; row < rows; ++row) {
      Duals z(&logits[row * V], &logits[row * V] + V);
      const Dual target = z[batch.targets[row]] - std::max_element(z.begin(), z.end())->value;
      total += log(softmax(z)) - target;
    }
    return total / static_cast<double>(rows);
  }
};

}  // namespace

Outcome equations(const CheckInput& given) {
  TestModel<double> model(given, given.config.model);
  const WindowBatch batch = small_batch(given, 32);
  const Tensors pass = tensors_of(model, view(batch));
  double largest = 1;
  for (const auto& [name, x] : pass) {
    if (name.starts_with("act.")) largest = std::max(largest, l2_norm(std::ssize(x), x.data()));
  }
  // The norm of a constant row is pure rounding error divided by sqrt(eps), so small sites need an absolute
  // tolerance.
  const double root = std::sqrt(std::max(given.config.model.norm_eps, 1e-12));
  const double least_size = std::max(1.0, 0x1p-50 * largest / root / identity_limit);
  // Nor is an equation more exact than what it makes of rounding of the numbers that it reads.
  Equations::Sites given_sites, moved;
  for (const auto& [name, x] : pass) {
    const RandomStream stream(0, name);
    for (Index i = 0; i < std::ssize(x); ++i) {
      given_sites[name].push_back(x[i]);
      moved[name].push_back(x[i] * (1 + 0x1p-48 * (2 * stream.uniform(i) - 1)));
    }
  }
  const Equations equations{model, view(batch)};
  const Equations::Sites of_moved = equations.sites(&moved);
  const Equations::Sites expected_sites = equations.sites(&given_sites);
  Worst worst;
  for (const auto& [name, x] : pass) {
    if (name.starts_with("act.") && !expected_sites.contains(name)) worst.add(name, INFINITY, 1);  // no equation
  }
  for (const auto& [name, site] : expected_sites) {
    const Numbers expected = values(site);
    const double size = l2_norm(std::ssize(expected), expected.data());
    const double rounding = l2_distance(values(of_moved.at(name)), expected) / identity_limit;
    worst.add(name, l2_distance(pass.at(name), expected), std::max({size, least_size, rounding}));
  }
  const double loss = pass.at("loss")[0];
  if (!norm_row(given.config.model.norm).has_running)  // else evaluation has statistics of its own
    worst.add("loss in evaluation", std::abs(model.loss(view(batch)) - loss), std::max(least_size, loss));
  return unless_nan(
      given, {{worst.result("every site equals its equation, written out in plain loops", identity_limit)}});
}

std::vector<double> slopes_of_loss(const Model<double>& model, const Pass& batch,
                                   const ParameterBuffer<double>& directions) {
  Equations equations{model, batch};
  std::vector<double> slopes;
  for (const Parameter& p : model.layout().list()) {
    Dual* w = &equations.weights[p.offset];
    for (Index i = 0; i < p.size; ++i) w[i].slope = directions.at(p)[i];
    slopes.push_back(equations.sites(nullptr).at("loss")[0].slope);
    for (Index i = 0; i < p.size; ++i) w[i].slope = 0;
  }
  return slopes;
}

// The first and the last number of each initial matrix (of qkv, one of q and one of v) are compared with
// those of plain pre-norm, whose draws are the same; all numbers of a vector with their start.
Outcome first_weights(const CheckInput& given) {
  ModelConfig plain = given.config.model;
  plain.norm_placement = {PlacementKind::pre};
  plain.init.residual_scaling = plain.init.zero_branches = false;
  const Index V = given.corpus.vocab.size();
  Model<double> model(given.config.model, V, GemmProvider::openblas), other(plain, V, GemmProvider::openblas);
  for (Model<double>* m : {&model, &other})
    initialise(m->config(), m->layout(), given.config.train.seed, m->parameters);
  Worst worst;
  for (const Parameter& p : model.layout().list()) {
    const double* w = model.parameters.at(p);
    if (!p.is_drawn()) {
      const double start = first_number(model.config(), p);
      for (Index i = 0; i < p.size; ++i)
        worst.add(p.name, std::abs(w[i] - start), start != 0 ? std::abs(start) : 1);
      continue;
    }
    const double* v = other.parameters.at(other.layout()[other.layout().find(p.name)]);
    for (const Index i : {Index{0}, p.size - 1}) {
      const double factor = p.role == Role::qkv && i == 0 ? 1 : init_factor(model.config(), p);
      worst.add(p.name, std::abs(w[i] - factor * v[i]), std::abs(v[i]));
    }
  }
  return {{worst.result("first weights are those of plain pre-norm times the placement's factors", identity_limit)}};
}

}  // namespace normscope
