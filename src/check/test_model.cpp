#include "check/test_model.h"

#include "core/random.h"
#include "model/cost.h"

namespace normscope {

TestBatch::TestBatch(const Context& given, Index sequences, Index length)
    : tokens(sequences * length), targets(tokens.size()), context(length) {
  const BatchSampler sampler(given.corpus.train, context, given.config.train.seed);
  sampler.fill(1, 0, sequences, tokens.data(), targets.data());
}

TestBatch small_batch(const Context& given, double max_flops) {
  const ModelConfig& model = given.config.model;
  const ParameterLayout layout(model, given.corpus.vocab.size());
  const auto tokens = static_cast<Index>(max_flops / training_flops_per_token(model, layout));
  const Index context = std::clamp<Index>(tokens, std::min<Index>(model.context, 2), model.context);
  return {given, std::max<Index>(tokens >= 2 * context ? 2 : 1, 16 / context), context};
}

double l2_distance(Index n, const double* a, const double* b) {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

double Tensor::distance(const Tensor& other) const {
  require(name == other.name && data.size() == other.data.size(), "check", name, " of ", data.size(),
          " numbers stands beside ", other.name, " of ", other.data.size());
  return l2_distance(std::ssize(data), data.data(), other.data.data());
}

const Tensor& tensor_named(const std::vector<Tensor>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Tensor::name);
  require(found != all.end(), "check", "a pass has no ", name);
  return *found;
}

std::string site_name(Place place) { return text("act.", place.layer, '.', name_of(place.site)); }

template <class Real>
std::vector<Tensor> tensors_of(Model<Real>& model, const Pass& batch) {
  SiteCopies<Real> sites;
  model.gradients.clear();
  std::vector<Tensor> all{{Tensor::loss, "loss", {model.loss_and_gradients(batch, 1, &sites)}}};
  const auto add = [&](Tensor::Kind kind, const char* what, const std::vector<SiteCopy<Real>>& copies) {
    for (const auto& [place, rows, cols, x] : copies)
      all.push_back({kind, text(what, place.layer, '.', name_of(place.site)), {x.begin(), x.end()}});
  };
  add(Tensor::value, "act.", sites.values);
  add(Tensor::site_gradient, "act_grad.", sites.gradients);
  for (const Parameter& p : model.layout().list()) {
    const Real* g = model.gradients.at(p);
    const auto kind = p.is_matrix() ? Tensor::matrix_gradient : Tensor::vector_gradient;
    if (p.trainable) all.push_back({kind, "grad." + p.name, {g, g + p.size}});
  }
  return all;
}

template std::vector<Tensor> tensors_of(Model<float>&, const Pass&);
template std::vector<Tensor> tensors_of(Model<double>&, const Pass&);

void find_rounding(Model<double>& model, const Pass& batch, double noise, std::vector<Tensor>& pass) {
  const std::vector<double> weights = model.parameters.all();
  // Several passes, since a single number, such as a learned scale, may move little in one.
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const RandomStream stream(seed, "rounded weights");
    for (std::size_t i = 0; i < weights.size(); ++i)
      model.parameters.all()[i] = weights[i] * (1 + noise * (2 * stream.uniform(i) - 1));
    model.tape.set_noise(noise, seed);
    const std::vector<Tensor> moved = tensors_of(model, batch);
    for (std::size_t i = 0; i < pass.size(); ++i)
      pass[i].rounding = std::max(pass[i].rounding, moved[i].distance(pass[i]));
  }
  model.tape.set_noise(0);
  model.parameters.all() = weights;
}

void Worst::add(const std::string& place, double error, double limit, double scale) {
  if (limit > max_rounding * scale && error <= limit) return;
  const double ratio = error == 0 ? 0 : error / limit;
  if (std::isnan(ratio_) || ratio <= ratio_) return;
  const double unit = scale > 0 && std::isfinite(scale) ? scale : 1;
  ratio_ = ratio;
  error_ = error / unit;
  limit_ = limit / unit;
  place_ = place;
}

Result vanishes(std::string law, Tape<double>& tape, const std::function<std::vector<Residue>()>& measure) {
  const std::vector<Residue> found = measure();
  std::vector<double> rounding(found.size()), scale_rounding(found.size());
  for (const std::uint64_t pass : {1, 2, 3}) {
    tape.set_noise(noise_of_double, pass);
    const std::vector<Residue> noisy = measure();
    for (std::size_t i = 0; i < found.size(); ++i) {
      rounding[i] = std::max(rounding[i], std::abs(noisy[i].value - found[i].value));
      scale_rounding[i] = std::max(scale_rounding[i], std::abs(noisy[i].scale - found[i].scale));
    }
  }
  tape.set_noise(0);
  Worst worst;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [place, value, scale] = found[i];
    if (scale_rounding[i] > max_rounding * scale) continue;
    worst.add(place, std::abs(value), rounding_margin * (rounding[i] + noise_of_double * scale), scale);
  }
  return worst.result(std::move(law));
}

}  // namespace normscope
