#include "measure/measure.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "data/batches.h"
#include "kernels/eigen.h"
#include "kernels/gemm/gemm.h"

namespace normscope {
namespace {

// Copies the streams x_0 .. x_L of a pass, (N, C) each.
template <class Real>
struct StreamCopies : TapListener<Real> {
  void on_value(Place place, const Matrix<Real>& x) override {
    if (place.site == Site::stream) streams.emplace_back(x.value, x.value + x.size());
  }
  void on_gradient(Place, const Matrix<Real>&) override {}

  std::vector<std::vector<Real>> streams;
};

template <class Real>
std::vector<std::vector<Real>> streams_of(Model<Real>& model, const Pass& pass, double* loss = nullptr) {
  StreamCopies<Real> copies;
  const double found = model.loss(pass, &copies);
  if (loss != nullptr) *loss = found;
  return std::move(copies.streams);
}

Pass evaluation_of(const WindowBatch& batch) {
  return {.tokens = batch.tokens, .targets = batch.targets, .context = batch.context, .eval_mode = true};
}

// gram += x^T x, x (N, C).
void add_gram(const std::vector<float>& x, Index C, std::vector<double>& gram) {
  std::vector<double> wide(x.begin(), x.end());
  const Matrix<double> tokens(wide.data(), std::ssize(x) / C, C);
  gemm<double>(GemmProvider::automatic, {.a = tokens.t(), .b = tokens, .c = {gram.data(), C, C}, .beta = 1});
}

// From X^T X, whose eigenvalues are the squares of X's singular values.
double effective_rank(std::vector<double>& gram, Index C) {
  std::vector<double> values = eigenvalues(C, gram.data(), /*want_vectors=*/false);
  double sum = 0, entropy = 0;
  for (double& value : values) sum += value = std::sqrt(std::max(value, 0.0));
  for (const double value : values) {
    if (value > 0) entropy -= value / sum * std::log(value / sum);
  }
  return std::exp(entropy);
}

// Over the pairs of each sequence of x (B*T, C): with unit tokens u, |sum u|^2 is T + the sum over pairs.
double mean_cosine(const std::vector<float>& x, Index T, Index C) {
  double cosines = 0;
  for (Index row = 0; row < std::ssize(x) / C; row += T) {
    std::vector<double> sum(C);
    for (const float* token = &x[row * C]; token < x.data() + (row + T) * C; token += C) {
      const double norm = std::sqrt(sum_squares(C, token));
      for (Index c = 0; c < C; ++c) sum[c] += static_cast<double>(token[c]) / norm;
    }
    cosines += sum_squares(C, sum.data()) / static_cast<double>(T) - 1;
  }
  return cosines / static_cast<double>(T - 1) * static_cast<double>(T * C) / static_cast<double>(x.size());
}

void add_to(std::optional<double>& sum, double value) { sum = sum.value_or(0) + value; }

// Adds the measures of one batch with `share` of all tokens. `grams`: (C, C) of each layer, if ranks are
// wanted.
void add_streams(Model<float>& model, const WindowBatch& batch, double share, const Wanted& wanted,
                 std::vector<std::vector<double>>& grams, Measures& found) {
  const Index L = model.config().n_layer, C = model.config().d_model;
  double loss = 0;
  const Pass pass = evaluation_of(batch);
  std::vector<std::vector<float>> x = streams_of(model, pass, &loss);
  found.loss += share * loss;
  for (Index l = 0; l <= L; ++l) {
    auto& layer = found.layers[l];
    if (wanted[Measure::lens]) {
      Pass anew = pass;
      anew.eval_mode = l == L;
      add_to(layer[Measure::lens], share * model.loss_from(anew, L, x[l]));
    }
    if (wanted[Measure::without] && l > 0)
      add_to(layer[Measure::without], share * model.loss_from(pass, l, x[l - 1]));
    if (wanted[Measure::rank]) add_gram(x[l], C, grams[l]);
    if (wanted[Measure::token_cosine] && batch.context > 1)
      add_to(layer[Measure::token_cosine], share * mean_cosine(x[l], batch.context, C));
  }
}

void add_amplification(Model<double>& model, const Pass& pass, Measures& found) {
  // In double, its square and rounding are both far below it. No size is so in float.
  constexpr double size = 0x1p-20;
  constexpr int draws = 8;
  const std::vector<std::vector<double>> x = streams_of(model, pass);
  const std::vector<double> weights = model.parameters.all();
  double mean = 0, squares = 0;  // of the amplification of x_L over the draws
  for (int draw = 1; draw <= draws; ++draw) {
    for (const Parameter& p : model.layout().list()) {
      if (p.role != Role::qkv && p.role != Role::matrix && p.role != Role::branch_output) continue;
      const RandomStream stream(draw, "noise of " + p.name);
      double* w = model.parameters.at(p);
      for (Index i = 0; i < p.size; ++i) w[i] *= 1 + size * stream.normal(i);
    }
    std::vector<std::vector<double>> moved = streams_of(model, pass);
    model.parameters.all() = weights;
    for (std::size_t l = 0; l < x.size(); ++l) {
      const Index n = std::ssize(x[l]);
      axpby(n, -1.0, x[l].data(), 1.0, moved[l].data());
      const double a = sum_squares(n, moved[l].data()) / sum_squares(n, x[l].data()) / (size * size);
      add_to(found.layers[l][Measure::amplification], a / draws);
      if (l + 1 < x.size()) continue;
      mean += a / draws;
      squares += a * a / draws;
    }
  }
  found.amplification_error = std::sqrt(std::max(squares - mean * mean, 0.0) / (draws - 1));
}

using Vector = std::vector<double>;  // laid out as the parameters; 0 where nothing is trained

double dot(const Vector& a, const Vector& b) { return normscope::dot(std::ssize(a), a.data(), b.data()); }
double length(const Vector& a) { return std::sqrt(dot(a, a)); }
// y = alpha*x + beta*y
void add(double alpha, const Vector& x, double beta, Vector& y) {
  axpby(std::ssize(x), alpha, x.data(), beta, y.data());
}

// product = H v by differences over h. The weights are restored.
void multiply(Model<double>& model, const Pass& batch, const Vector& v, double h, Vector& product) {
  const Vector weights = model.parameters.all();
  for (const double step : {h, -h}) {
    add(step, v, 1, model.parameters.all());
    model.gradients.clear();
    model.loss_and_gradients(batch);
    add(0.5 / step, model.gradients.all(), step > 0 ? 0 : 1, product);
    model.parameters.all() = weights;
  }
  for (const Parameter& p : model.layout().list()) {
    if (!p.trainable) fill_zero(p.size, product.data() + p.offset);
  }
}

Vector random_direction(const ParameterLayout& layout) {
  Vector v(layout.block_size());
  for (const Parameter& p : layout.list()) {
    const RandomStream stream(1, "direction of " + p.name);
    for (Index i = 0; i < p.size && p.trainable; ++i) v[p.offset + i] = stream.normal(i);
  }
  add(0, v, 1 / length(v), v);
  return v;
}

// Sets value and residual from H in the basis of the vectors so far, a tridiagonal matrix. The last of
// `beside` leads to the next vector.
void project(const Vector& diagonal, const Vector& beside, Sharpness& found) {
  const std::size_t n = diagonal.size();
  Vector h(n * n);
  for (std::size_t i = 0; i < n; ++i) h[i * n + i] = diagonal[i];
  for (std::size_t i = 1; i < n; ++i) h[i * n + i - 1] = h[i * n - n + i] = beside[i - 1];
  found.products = std::ssize(diagonal);
  found.value = eigenvalues(found.products, h.data(), /*want_vectors=*/true).back();
  found.residual = beside.back() * std::abs(h.back());
}

// By Lanczos' recurrence (1950) from a random vector, until the residual is 1e-3 of the value, or 200
// products. H v is a central difference of gradients, (g(w + hv) - g(w - hv)) / 2h. The loss is that of a
// training step: batch norm by the batch's own statistics, no dropout. The weights end as they began.
Sharpness sharpness(Model<double>& model, Pass batch) {
  constexpr double tolerance = 1e-3;
  constexpr Index most_products = 200;
  // Relative to the weights' length. A ReLU with its kink within the step adds its whole jump over 2h: at
  // 1e-9 one in a million turned a sharpness of 19 into 3e5. Rounding is about 1e-5 of a product.
  const double h = 1e-11 * length(model.parameters.all());
  batch.eval_mode = false;
  Vector v = random_direction(model.layout()), before(v.size()), next(v.size());
  multiply(model, batch, v, 2 * h, before);
  multiply(model, batch, v, h, next);
  add(-1, next, 1, before);
  Sharpness found{.difference_error = length(before) / length(next)};

  // Vectors are not reorthogonalised: rounding then duplicates eigenvalues, but the largest one stays right
  // (Paige 1976).
  Vector diagonal, beside;
  for (double beta = 0;;) {
    if (!diagonal.empty()) multiply(model, batch, v, h, next);
    const double alpha = dot(next, v);
    if (!std::isfinite(alpha)) fail("measure", "no sharpness: gradients at these weights are not finite");
    add(-alpha, v, 1, next);
    add(-beta, before, 1, next);
    beta = length(next);
    diagonal.push_back(alpha);
    beside.push_back(beta);
    project(diagonal, beside, found);
    if (found.residual <= tolerance * std::abs(found.value) || found.products == most_products) return found;
    add(1 / beta, next, 0, before);
    before.swap(v);
  }
}

}  // namespace

Measures measure(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches,
                 const Wanted& wanted) {
  const Index L = model.config().n_layer, C = model.config().d_model, context = model.config().context;
  Measures found;
  found.layers.resize(L + 1);
  std::vector<std::vector<double>> grams(wanted[Measure::rank] ? found.layers.size() : 0,
                                         std::vector<double>(C * C));
  const auto windows_of = [&](Index count) { return evaluation_windows(std::ssize(text), context, count); };
  const std::vector<Window> windows = windows_of(batches == 0 ? std::ssize(text) : batches * batch_size);
  for (const std::span<const Window> group : window_groups(windows, batch_size)) {
    const double share = static_cast<double>(group.size()) / static_cast<double>(windows.size());
    add_streams(model, WindowBatch(text, group), share, wanted, grams, found);
  }
  for (std::size_t l = 0; l < grams.size(); ++l) found.layers[l][Measure::rank] = effective_rank(grams[l], C);

  if (!wanted[Measure::amplification] && !wanted[Measure::sharpness]) return found;
  Model<double> exact(model.config(), model.transformer.vocab_size(), GemmProvider::automatic);
  exact.parameters.all().assign(model.parameters.all().begin(), model.parameters.all().end());
  const WindowBatch batch(text, windows_of(batch_size));
  if (wanted[Measure::amplification]) add_amplification(exact, evaluation_of(batch), found);
  if (wanted[Measure::sharpness]) found.sharpness = sharpness(exact, evaluation_of(batch));
  return found;
}

}  // namespace normscope
