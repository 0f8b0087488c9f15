// The theory behind `predict`: its closed laws at context 1, its limits, its integrals. What a probe measures
// beside it is in test_cli_predict.py.
#include <numbers>
#include <numeric>

#include "helpers.h"
#include "theory/activations.h"
#include "theory/attention.h"
#include "theory/norms.h"
#include "theory/predict.h"
#include "theory/softmax_moments.h"

using namespace normscope;

namespace {

// Context 1, Xavier, no epsilon: the setting of the closed laws.
ModelConfig closed(const std::vector<BlockPlacement>& placement, Index n_layer, Index d_ff = 256) {
  ModelConfig config;
  config.n_layer = n_layer;
  config.n_head = 4;
  config.d_model = 256;
  config.d_ff = d_ff;
  config.context = 1;
  config.norm_eps = 0;
  config.norm_placement = placement;
  const Placement& row = *placements_of(config).back().ffn;
  if (!row.has_norms()) config.norm = NormKind::none;
  config.final_norm = row.final_norm;
  config.activation = Activation::relu;
  config.position = Position::none;
  config.tie_embeddings = false;
  config.init = {InitScheme::xavier_normal, 0.02, 1, false};
  return config;
}

const TextStatistics one_character{65, {1, 0.06}};

// Mean squares of the stream, x_0 to x_L; and of its gradient over that of the last.
struct Streams {
  std::vector<double> value, gradient;
  explicit Streams(const Prediction& prediction) {
    for (const SitePrediction& site : prediction.sites) {
      if (site.place.site != Site::stream) continue;
      value.push_back(site.rms * site.rms);
      gradient.push_back(site.grad_rms * site.grad_rms);
    }
    for (double& g : gradient) g /= gradient.back();
  }
};

// In the limit of wide layers.
Prediction closed_prediction(const ModelConfig& config) {
  return predict(config, 64, one_character, {.finite_width = false});
}
Streams streams(const ModelConfig& config) { return Streams(closed_prediction(config)); }

void check_equal(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance = 1e-9) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(tolerance));
}

// f(z, weight) at the points of an integral over the standard normal distribution.
template <class F>
void normal_mean_of(double step, F f) {
  for (double z = -9; z < 9; z += step) f(z, std::exp(-z * z / 2) * step / std::sqrt(2 * std::numbers::pi));
}

// The integral of f over the standard normal distribution.
template <class F>
double normal_mean(F f) {
  double sum = 0;
  normal_mean_of(1e-3, [&](double z, double weight) { sum += weight * f(z); });
  return sum;
}
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

Kernel random_kernel(Index T) {  // positive definite, with unit diagonal nowhere
  const std::vector<double> x = testing::normals<double>(T * 12, "features");
  return Kernel(T, [&](Index t, Index s) {
    double sum = t == s ? 0.3 : 0;
    for (Index i = 0; i < 12; ++i) sum += (x[t * 12 + i] + 0.5) * (x[s * 12 + i] + 0.5) / 12;
    return sum;
  });
}

}  // namespace

TEST_CASE("theory: at context 1 the stream's mean square follows the closed law of each placement") {
  using enum PlacementKind;
  check_equal(streams(closed({pre}, 4)).value, {1, 2.5, 4, 5.5, 7});
  check_equal(streams(closed({pre}, 1, 512)).value, {1, 2 + 4.0 / 9});
  check_equal(streams(closed({pre}, 1, 1024)).value, {1, 2 + 8.0 / 25});
  check_equal(streams(closed({pre_scaled}, 4)).value, {1, 2.5, 3.25, 3.75, 4.125});
  for (const PlacementKind kind : {sandwich, peri, res_post})
    check_equal(streams(closed({kind}, 4)).value, {1, 3, 5, 7, 9});
  for (const PlacementKind kind : {post, deepnorm, keel, rezero})
    check_equal(streams(closed({kind}, 4)).value, {1, 1, 1, 1, 1});
  check_equal(streams(closed({none}, 4)).value, {1, 3, 9, 27, 81});
  check_equal(streams(closed({mix}, 4)).value, {1, 1, 2.5, 4, 5.5});
  check_equal(streams(closed({peri, res_post, deepnorm, pre_scaled, post, pre}, 6)).value,
              {1, 3, 5, 1, 1.375, 1, 2.5});
}

TEST_CASE("theory: the laws follow the initialisation, epsilon and what is left out") {
  using enum PlacementKind;
  const auto one_block = [](auto change, PlacementKind kind = pre) {
    ModelConfig config = closed({kind}, 1);
    change(config);
    return streams(config).value;
  };
  check_equal(one_block([](auto& c) { c.init.embed_std = 0.5; }), {0.25, 1.75});
  check_equal(one_block([](auto& c) { c.position = Position::learned; }), {2, 3.5});
  check_equal(one_block([](auto& c) { c.init.scheme = InitScheme::xavier_uniform; }), {1, 2.5});
  check_equal(one_block([](auto& c) { c.init.scheme = InitScheme::kaiming_normal; }), {1, 7});
  const double two_matrices = std::pow(256 * 0.02 * 0.02, 2);
  check_equal(one_block([](auto& c) { c.init.scheme = InitScheme::gpt2; }), {1, 1 + 1.5 * two_matrices});
  check_equal(one_block([](auto& c) {
                c.init = {InitScheme::gpt2, 0.02, 1, true};
              }),
              {1, 1 + 0.75 * two_matrices});
  check_equal(one_block([](auto& c) { c.residual = false; }), {1, 0.5});
  check_equal(one_block([](auto& c) { c.norm_eps = 0.5; }, post), {1, 1.2 / 1.7});
  const double outside = 1 / 1.5 / 1.5, mid = 1 + outside;
  check_equal(one_block([](auto& c) { c.norm_eps = 0.5, c.norm_eps_outside = true; }),
              {1, mid + 0.5 * mid / std::pow(std::sqrt(mid) + 0.5, 2)});
  // A norm of the sinusoids takes their mean away.
  const std::vector<double> waves = one_block([](auto& c) { c.position = Position::sinusoidal; }, post);
  check_equal(waves, {1.5, 1});
}

TEST_CASE("theory: at context 1 rms times gradient is conserved, whatever the placement") {
  using enum PlacementKind;
  for (const PlacementKind kind :
       {pre, post, sandwich, peri, res_post, deepnorm, pre_scaled, mix, rezero, none}) {
    CAPTURE(placement_row(kind).name);
    const Streams s = streams(closed({kind}, 12));
    for (std::size_t l = 0; l < s.value.size(); ++l)
      CHECK(s.value[l] * s.gradient[l] == doctest::Approx(s.value.back()).epsilon(1e-9));
  }
  // An activation that is not homogeneous breaks it: of SwiGLU both factors carry gradient.
  ModelConfig config = closed({post}, 24);
  config.activation = Activation::swiglu;
  const auto silu = [](double x) { return x * logistic(x); };
  const auto slope = [](double x) { return logistic(x) * (1 + x * (1 - logistic(x))); };
  const double forward = normal_mean([&](double z) { return silu(z) * silu(z); });
  const double backward = forward + normal_mean([&](double z) { return slope(z) * slope(z); });
  CHECK(streams(config).gradient[0] ==
        doctest::Approx(std::pow((1 + backward) / (1 + forward), 24)).epsilon(1e-6));
}

TEST_CASE("theory: a sum of three terms, and norms of q, k and v") {
  const Prediction b2t = closed_prediction(closed({PlacementKind::b2t}, 3));
  const Streams s(b2t);
  // Xavier times 1/L: with a branch of gain g at m = 1, z = (x + A)/sqrt(1 + g), then x + z + F.
  const double g = 1.0 / 9, c = 1 / std::sqrt(1 + g), sum = 2 + 2 * c + g / 2;
  CHECK(b2t.layers[3].share / b2t.layers[2].share == doctest::Approx((1 + c) / std::sqrt(sum)).epsilon(1e-9));
  for (std::size_t l = 1; l < s.value.size(); ++l)
    CHECK(s.value[l] * s.gradient[l] == doctest::Approx(1).epsilon(1e-9));
  ModelConfig config = closed({{PlacementKind::post, PlacementKind::none}}, 2);
  config.norm = NormKind::layernorm;
  config.qkv_norm = config.final_norm = true;
  config.init.embed_std = 3;  // the values' norm gives attention a mean square of 1, whatever it reads
  check_equal(streams(config).value, {9, 1.5, 1.5});
  CHECK(streams(config).gradient[1] == doctest::Approx(1).epsilon(1e-9));
}

TEST_CASE("theory: a norm before the output matrix") {
  using enum PlacementKind;
  const Index L = 6;
  const double gain = std::log(2.0 * L);  // of subln's matrices, squared: each branch returns as much
  std::vector<double> stream{1};
  double asymmetry = 1;  // LayerNorm takes the mean out of ReLU's output, and with it 1/pi of its mean square
  for (int l = 0; l < L; ++l) {
    const double m = stream.back() + gain;
    asymmetry *= (1 + std::numbers::pi / (std::numbers::pi - 1) * gain / m) / (1 + gain / m);
    stream.push_back(m + gain);
  }
  for (const NormKind norm : {NormKind::layernorm, NormKind::rmsnorm}) {
    ModelConfig config = closed({subln}, L);
    config.norm = norm;
    const Streams s = streams(config);
    check_equal(s.value, stream);
    CHECK(s.value[0] * s.gradient[0] ==
          doctest::Approx(s.value[L] * (norm == NormKind::layernorm ? asymmetry : 1)).epsilon(1e-9));
  }
  // Without statistics it is a function of the hidden features: tanh(relu(u)/2) has half the moments of
  // tanh(u/2).
  ModelConfig config = closed({{PlacementKind::none, subln}}, 1);
  config.norm = NormKind::dyt;
  config.init.placement_gain = false;
  const auto squashed = [](double z) { return std::pow(std::tanh(z / 2), 2); };
  const double mid = 2, in = normal_mean([&](double z) { return squashed(std::sqrt(mid) * z); }),
               out = normal_mean([&](double z) { return squashed(std::sqrt(in) * z); }) / 2;
  CHECK(streams(config).value[1] - mid == doctest::Approx(out).epsilon(1e-3));
}

TEST_CASE(
    "theory: of finite width the norms' gradients are larger by what lengths vary, less their projections") {
  using enum PlacementKind;
  const auto ratio = [](NormKind norm,
                        bool qkv_norm) {  // of the gradient at x_0 to that in the limit of wide layers
    ModelConfig config = closed({post}, 2);
    config.norm = norm;
    config.qkv_norm = qkv_norm;
    const auto at_x0 = [](const Prediction& prediction) {
      return std::pow(prediction.sites.front().grad_rms, 2);
    };
    return at_x0(predict(config, 64, one_character)) / at_x0(closed_prediction(config));
  };
  const auto product = [](std::initializer_list<double> terms) {
    double all = 1;
    for (const double term : terms) all *= 1 + term / 256;
    return all;
  };
  // Relative variances over 1/C, of attention's sum and the FFN's. A branch has 2 by its output matrix, and
  // by values 2 or by hidden features 5 C/F = 5; x.F adds 4 times the shares. Half of it is lost again: what
  // made the sum has a larger gain along it.
  const double attn = (4 + 4) / 4.0 / 2, ffn = (4 * 0.5 + (2 + 5) * 0.25) / 2.25 / 2;
  // x_0 varies too, and attention with it: 2, of which nothing is lost. The head's gradient may lie along x.
  const double first = attn + 2, last = 2 * ffn - 1;
  CHECK(ratio(NormKind::rmsnorm, false) == doctest::Approx(product({first, ffn, attn, last})).epsilon(1e-9));
  // Of the arriving gradient a half, and a third, come by a branch and have a mean for LayerNorm to take.
  CHECK(ratio(NormKind::layernorm, false) ==
        doctest::Approx(product({first - 1 / 2.0, ffn - 1 / 3.0, attn - 1 / 2.0, last - 1})).epsilon(1e-9));
  // A norm of the values within each head of D: attention does not vary with x_0.
  const double D = 64, branch = (D - 1) / (D - 2), normed = (4 + 2) / 4.0 / 2, second = 2 / 4.0;
  CHECK(ratio(NormKind::rmsnorm, true) ==
        doctest::Approx(product({normed + second, ffn, normed, last}) * std::pow((1 + branch) / 2, 2))
            .epsilon(1e-9));
}

TEST_CASE("theory: at context 1 the input's share, amplification and bf16 error follow their laws") {
  using enum PlacementKind;
  const auto predicted = [](PlacementKind kind, Index n_layer) {
    return closed_prediction(closed({kind}, n_layer));
  };
  const Prediction pre12 = predicted(pre, 12), post12 = predicted(post, 12), deep12 = predicted(deepnorm, 12);
  CHECK(pre12.layers[12].share == doctest::Approx(1 / std::sqrt(19)).epsilon(1e-9));
  CHECK(post12.layers[12].share == doctest::Approx(std::pow(3, -6)).epsilon(1e-9));
  double share = 1;
  for (const double gain : {1.0, 0.5}) share /= std::pow(1 + gain / (96 * std::sqrt(24)), 6);
  CHECK(deep12.layers[12].share == doctest::Approx(share).epsilon(1e-9));
  CHECK(post12.amplification == doctest::Approx(20).epsilon(1e-9));
  double sum = 0;
  for (int l = 0; l < 12; ++l) sum += 2 / (2 + 1.5 * l) + 1 / (2.5 + 1.5 * l);
  CHECK(pre12.amplification == doctest::Approx(sum).epsilon(1e-9));
  // b2t, L 2: weights by 2^-1/2 make embeddings of 1/2 in mean square, branches of 1/4 and 1/8. The FFN's sum
  // also has the block's input, which knows nothing of attention's own noise, 2/5.
  double noise = 0;
  for (const double input : {0.5, 1.0}) {
    const double kept = input + 1 + 2 * input / std::sqrt(1.25 * input);
    noise = (noise * kept + 0.4 + 0.125 * (noise + 0.4 + 2)) / (kept + 0.125);
  }
  CHECK(predicted(b2t, 2).amplification == doctest::Approx(noise).epsilon(1e-9));
  CHECK(post12.bf16_error() == doctest::Approx(1.659e-3 * std::sqrt(40)).epsilon(1e-3));
}

TEST_CASE("theory: scores that say nothing give uniform attention") {
  const Kernel k = random_kernel(40);
  const Kernel out = AttentionMap(k, {.query = 1e-6, .value = 2, .head_dim = 16}).forward();
  for (const Index t : {0, 1, 7, 39}) {
    for (const Index s : {0, 3, 39}) {
      double sum = 0;
      for (Index a = 0; a <= t; ++a) {
        for (Index b = 0; b <= s; ++b) sum += k(a, b);
      }
      CHECK(out(t, s) == doctest::Approx(2 * sum / static_cast<double>((t + 1) * (s + 1))).epsilon(1e-9));
    }
  }
}

TEST_CASE("theory: equal tokens attend evenly, and their scores have no gradient") {
  const Index T = 24;
  const Kernel ones(T, [](Index, Index) { return 1.0; }), g = random_kernel(T);
  for (const bool qk_norm : {false, true}) {
    AttentionMap map(ones, {.query = 3, .value = 2, .qk_norm = qk_norm, .head_dim = 16});
    double uniform = 0;
    for (Index t = 1; t <= T; ++t) uniform += std::log(static_cast<double>(t)) / static_cast<double>(T);
    CHECK(map.entropy == doctest::Approx(uniform).epsilon(2e-3));
    check_equal(map.forward().values, std::vector<double>(ones.values.size(), 2));
    // Weights sum to 1, so the values' gradient passes whole.
    const std::vector<double> dx = map.backward(g).values;
    CHECK(std::accumulate(dx.begin(), dx.end(), 0.0) ==
          doctest::Approx(2 * std::accumulate(g.values.begin(), g.values.end(), 0.0)).epsilon(1e-9));
  }
}

TEST_CASE("theory: independent tokens in one wide head keep the participation of independent scores") {
  const Index T = 32;
  const Kernel identity(T, [](Index t, Index s) { return t == s ? 1.0 : 0.0; });
  for (const double beta : {0.01, 1.0, 25.0}) {
    AttentionMap map(identity, {.query = std::sqrt(beta), .head_dim = 1'000'000'000, .cell_growth = 1});
    const Kernel out = map.forward();
    for (const Index t : {1, 5, 31})
      CHECK(out(t, t) ==
            doctest::Approx(softmax_moments(static_cast<double>(t + 1), std::sqrt(beta)).participation)
                .epsilon(1e-6));
    CHECK(map.score_std == doctest::Approx(std::sqrt(beta)).epsilon(1e-9));
  }
}

TEST_CASE("theory: attention, gentle and sharp, is that of sampled heads, and so is its gradient") {
  const Index T = 16, D = 64, heads = 400;
  const double Dr = static_cast<double>(D), count = static_cast<double>(heads);
  // Features of tokens that have a part of their mean square in common.
  const auto kernel = [&](double common) {
    return Kernel(T, [&](Index t, Index s) { return t == s ? 1 : common; });
  };
  const auto features = [&](double common, double variance, const std::string& name) {
    const std::vector<double> z = testing::normals<double>((T + 1) * D, name);
    std::vector<double> y;
    for (Index i = 0; i < T * D; ++i)
      y.push_back(std::sqrt(variance * common) * z[T * D + i % D] +
                  std::sqrt(variance * (1 - common)) * z[i]);
    return y;
  };
  for (const double scale : {1.0, 6.0}) {
    CAPTURE(scale);
    AttentionMap map(kernel(0.4), {.query = scale, .value = 2, .head_dim = D});
    double forward = 0, backward = 0, response = 0;
    for (Index h = 0; h < heads; ++h) {
      const std::string head = std::to_string(h);
      const std::vector<double> q = features(0.4, scale, "q" + head), k = features(0.4, scale, "k" + head),
                                v = features(0.4, 2, "v" + head), da = features(0.1, 1, "da" + head),
                                noise = features(0.4, scale, "noise" + head);
      const auto dot = [&](const std::vector<double>& a, Index t, const std::vector<double>& b, Index s) {
        return std::inner_product(&a[t * D], &a[t * D] + D, &b[s * D], 0.0);
      };
      std::vector<double> dq(q.size()), dk(q.size()), dv(q.size()), w(static_cast<std::size_t>(T)), dw(w);
      for (Index t = 0; t < T; ++t) {
        double sum = 0, mean = 0, drift = 0;
        for (Index s = 0; s <= t; ++s) sum += w[s] = std::exp(dot(q, t, k, s) / std::sqrt(Dr));
        std::vector<double> out(static_cast<std::size_t>(D)), change(out);
        const auto moved = [&](Index s) { return dot(noise, t, k, s) / std::sqrt(Dr); };
        for (Index s = 0; s <= t; ++s) mean += (w[s] /= sum) * (dw[s] = dot(da, t, v, s));
        for (Index s = 0; s <= t; ++s) drift += w[s] * moved(s);
        for (Index s = 0; s <= t; ++s) {
          const double ds = w[s] * (dw[s] - mean) / std::sqrt(Dr), dw_s = w[s] * (moved(s) - drift);
          for (Index d = 0; d < D; ++d) {
            out[d] += w[s] * v[s * D + d];
            change[d] += dw_s * v[s * D + d];
            dv[s * D + d] += w[s] * da[t * D + d];
            dq[t * D + d] += ds * k[s * D + d];
            dk[s * D + d] += ds * q[t * D + d];
          }
        }
        forward += std::inner_product(out.begin(), out.end(), out.begin(), 0.0);
        response += std::inner_product(change.begin(), change.end(), change.begin(), 0.0);
      }
      // Through each matrix of C inputs, over C.
      const auto square = [](const std::vector<double>& a) {
        return std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
      };
      backward += 2 * square(dv) + scale * (square(dq) + square(dk));
    }
    const double numbers = static_cast<double>(T) * Dr * count;
    CHECK(map.forward().mean_square() == doctest::Approx(forward / numbers).epsilon(0.02));
    CHECK(map.backward(kernel(0.1)).mean_square() == doctest::Approx(backward / numbers).epsilon(0.05));
    CHECK(map.score_response == doctest::Approx(response / numbers).epsilon(0.05));
  }
}

TEST_CASE("theory: weights of two queries whose scores are correlated, of two keys") {
  for (const double sigma : {0.5, 3.0, 10.0}) {
    for (const double rho : {0.0, 0.4, 0.9}) {
      CAPTURE(sigma);
      CAPTURE(rho);
      double participation = 0, slope = 0;  // means over A and A'
      const double own = std::sqrt(1 - rho) * std::numbers::sqrt2 * sigma;
      normal_mean_of(0.02, [&](double u, double weight) {
        const double shared = std::sqrt(rho) * std::numbers::sqrt2 * sigma * u;
        double mean = 0, square = 0, response = 0;
        normal_mean_of(0.02, [&](double z, double inner) {
          const double a = logistic(shared + own * z);
          mean += inner * a, square += inner * a * a, response += inner * a * (1 - a);
        });
        participation += weight * (mean * mean + (1 - mean) * (1 - mean));
        slope += weight * 2 * response * response;
      });
      const SharedMoments m = shared_moments(2, sigma, rho);
      const double y = 1 / (1 + std::exp(-m.exponent));
      CHECK(y == doctest::Approx(participation).epsilon(0.02));
      CHECK(m.slope * slope_of(2, y) == doctest::Approx(slope).epsilon(0.15));
    }
  }
}

TEST_CASE("theory: softmax moments of two scores are integrals over their difference") {
  for (const double sigma : {0.01, 0.05, 0.3, 1.0, 4.0, 20.0}) {
    CAPTURE(sigma);
    const auto over_weights = [&](auto f) {
      return normal_mean([&](double z) { return f(logistic(std::numbers::sqrt2 * sigma * z)); });
    };
    const SoftmaxMoments m = softmax_moments(2, sigma);
    const auto square = [](double p) { return p * p + (1 - p) * (1 - p); };
    CHECK(m.participation == doctest::Approx(over_weights(square)).epsilon(1e-3));
    CHECK(m.slope == doctest::Approx(over_weights([&](double p) {
                       return square(p) - 2 * (p * p * p + (1 - p) * (1 - p) * (1 - p)) +
                              square(p) * square(p);
                     })).epsilon(3e-3));
    CHECK(m.entropy == doctest::Approx(over_weights([](double p) {
                         return p <= 0 || p >= 1 ? 0 : -p * std::log(p) - (1 - p) * std::log(1 - p);
                       })).epsilon(3e-3));
    for (const double shift : {0.0, 2.5}) {
      const auto over_difference = [&](auto f) {
        return normal_mean([&](double z) { return f(shift + std::numbers::sqrt2 * sigma * z); });
      };
      const ShiftedSoftmax s = shifted_softmax(2, sigma, shift);
      CHECK(s.log_sum ==
            doctest::Approx(over_difference([](double d) { return std::log1p(std::exp(d)); })).epsilon(1e-6));
      CHECK(s.own == doctest::Approx(over_difference(logistic)).epsilon(1e-6));
      CHECK(s.own_square == doctest::Approx(over_difference([](double d) {
                              return std::pow(logistic(d), 2);
                            })).epsilon(1e-6));
      CHECK(s.other_square == doctest::Approx(over_difference([](double d) {
                                return std::pow(logistic(-d), 2);
                              })).epsilon(1e-6));
    }
  }
}

TEST_CASE("theory: the Hermite series is exact for a sine, the arc-cosine kernel for ReLU") {
  const Kernel k = random_kernel(6);
  const Response sine = smooth_response(k, [](Index n, const double* x, double* y, double* derivative) {
    for (Index i = 0; i < n; ++i) y[i] = std::sin(x[i]), derivative[i] = std::cos(x[i]);
  });
  const Response relu = hidden_response(Activation::relu, k);
  for (Index t = 0; t < 6; ++t) {
    CHECK(sine.gain[t] == doctest::Approx(std::exp(-k(t, t) / 2)).epsilon(1e-9));
    CHECK(relu.value(t, t) == doctest::Approx(k(t, t) / 2).epsilon(1e-12));
    CHECK(relu.slope(t, t) == doctest::Approx(0.5).epsilon(1e-12));
    for (Index s = 0; s < 6; ++s) {
      const double decay = std::exp(-(k(t, t) + k(s, s)) / 2);
      CHECK(sine.value(t, s) == doctest::Approx(decay * std::sinh(k(t, s))).epsilon(1e-9));
      CHECK(sine.slope(t, s) == doctest::Approx(decay * std::cosh(k(t, s))).epsilon(1e-9));
      // E relu(u) relu(v) - E relu(-u) relu(v) = E u relu(v) = k/2.
      const double rho = -k(t, s) / std::sqrt(k(t, t) * k(s, s));
      const double other = std::sqrt(k(t, t) * k(s, s)) *
                           (std::sqrt(std::max(1 - rho * rho, 0.0)) +
                            (std::numbers::pi - std::acos(std::max(rho, -1.0))) * rho) /
                           (2 * std::numbers::pi);
      CHECK(relu.value(t, s) - other == doctest::Approx(k(t, s) / 2).epsilon(1e-9));
    }
  }
}

TEST_CASE("theory: excess kurtosis changes the second moment of a square by itself") {
  const Kernel k = random_kernel(3);
  const PointwiseFunction square = [](Index n, const double* x, double* y, double* derivative) {
    for (Index i = 0; i < n; ++i) y[i] = x[i] * x[i], derivative[i] = 2 * x[i];
  };
  for (const double excess : {-1.0, 0.0, 2.0}) {
    const Response response = smooth_response(k, square, excess);
    for (Index t = 0; t < 3; ++t) {
      CHECK(response.value(t, t) == doctest::Approx((3 + excess) * k(t, t) * k(t, t)).epsilon(1e-9));
      CHECK(response.slope(t, t) == doctest::Approx(4 * k(t, t)).epsilon(1e-9));
    }
  }
  CHECK(smooth_response(k, square).excess == doctest::Approx(105.0 / 9 - 3).epsilon(1e-9));
}

TEST_CASE("theory: a norm over tokens is exact where features have one shape or all") {
  const Index T = 12;
  Kernel independent(T, [](Index t, Index s) { return t == s ? 3.0 : 0.0; });
  const TokenNorm even(independent, 0);
  const double n = static_cast<double>(T);
  for (Index t = 0; t < T; ++t)
    CHECK(independent(t, 1) == doctest::Approx(((t == 1 ? 1 : 0) - 1 / n) * n / (n - 1)).epsilon(1e-6));
  // V = 3 chi^2_{n-1} / n: E 1/V = n / 3 / (n - 3). Of white dx the norm takes the mean and the direction.
  CHECK(even.inverse() == doctest::Approx(n / 3 / (n - 3)).epsilon(1e-6));
  const Kernel dx = even.backward(Kernel(T, [](Index t, Index s) { return t == s ? 1.0 : 0.0; }));
  CHECK(dx.mean_square() == doctest::Approx(even.inverse() * (n - 2) / n).epsilon(1e-6));
  Kernel pair(2, [](Index t, Index s) { return t == s ? 1.0 : 0.4; });  // always +1 and -1
  const TokenNorm sign(pair, 0);
  check_equal(pair.values, {1, -1, -1, 1}, 1e-3);
}

TEST_CASE("theory: a norm over two sequences is one over all their tokens") {
  const Index T = 6;
  const Kernel own = random_kernel(T), between = random_kernel(T + 1);
  const auto both = [&](double share) {
    return Kernel(2 * T, [&](Index t, Index s) {
      return t / T == s / T ? own(t % T, s % T) : share * between(t % T, s % T);
    });
  };
  Kernel batch = both(0.2), tokens = batch;
  const TokenNorm of_batch(batch, 0.01, 2), of_tokens(tokens, 0.01);
  check_equal(batch.values, tokens.values);
  CHECK(of_batch.inverse() == doctest::Approx(of_tokens.inverse()).epsilon(1e-9));
  check_equal(of_batch.backward(both(-0.3)).values, of_tokens.backward(both(-0.3)).values);
}

TEST_CASE("theory: attention reads another sequence as it reads its own") {
  const Index T = 10;
  const Kernel k = random_kernel(T), g = random_kernel(T);
  const auto twice = [&](const Kernel& one) {  // the same sequence, twice
    return Kernel(2 * T, [&](Index t, Index s) { return one(t % T, s % T); });
  };
  for (const bool rope : {false, true}) {
    AttentionScale scale{.query = 2, .value = 2, .rope = rope, .head_dim = 16, .cell_growth = 1};
    AttentionMap one(k, scale);
    scale.sequences = 2;
    AttentionMap two(twice(k), scale);
    const Kernel y = one.forward(), y2 = two.forward();
    Kernel lonely = twice(g);  // a gradient of which the sequences have nothing in common
    for (Index t = 0; t < T; ++t) {
      for (Index s = 0; s < T; ++s) lonely(t, s + T) = lonely(t + T, s) = 0;
    }
    const Kernel dx = one.backward(g), dx2 = two.backward(lonely);
    for (Index t = 0; t < T; ++t) {
      for (Index s = 0; s < T; ++s) {
        if (t != s) CHECK(y2(t, s + T) == doctest::Approx(y(t, s)).epsilon(1e-12));
        CHECK(y2(t + T, s + T) == y(t, s));
        CHECK(dx2(t, s) == doctest::Approx(dx(t, s)).epsilon(1e-12));
        CHECK(dx2(t + T, s) == 0);
      }
    }
  }
}

TEST_CASE("theory: cells of neighbouring queries change next to nothing") {
  using enum PlacementKind;
  TextStatistics text{60, {1}};
  for (Index d = 1; d <= 48; ++d) text.collisions.push_back(0.06 + 0.03 * std::sin(static_cast<double>(d)));
  for (const Position position : {Position::learned, Position::rope}) {
    ModelConfig config = closed({post, post, pre, res_post}, 4);
    config.context = 48;
    config.position = position;
    const Prediction cells = predict(config, 384, text),
                     exact = predict(config, 384, text, {.cell_growth = 1});
    for (std::size_t i = 0; i < exact.sites.size(); ++i) {
      CHECK(cells.sites[i].rms == doctest::Approx(exact.sites[i].rms).epsilon(3e-3));
      CHECK(cells.sites[i].grad_rms == doctest::Approx(exact.sites[i].grad_rms).epsilon(1e-2));
    }
    CHECK(cells.loss == doctest::Approx(exact.loss).epsilon(1e-3));
  }
}

TEST_CASE("theory: where it has no answer it says so") {
  ModelConfig config = closed({PlacementKind::none}, 12);
  config.context = 16;
  TextStatistics text{60, std::vector<double>(17, 0.06)};
  text.collisions[0] = 1;
  CHECK_THROWS_WITH(predict(config, 16, text), doctest::Contains("no prediction: in block"));
  config.context = 4096;
  CHECK_THROWS_WITH(predict(config, 16, text), doctest::Contains("no prediction: model.context"));
  config = closed({PlacementKind::none}, 1000);  // 3^1000
  CHECK_THROWS_WITH(predict(config, 64, one_character), doctest::Contains("is not finite"));
  config = closed({PlacementKind::deepnorm}, 12);
  config.norm = NormKind::dyt;
  CHECK_THROWS_WITH(predict(config, 64, one_character), doctest::Contains("far from Gaussian"));
}
