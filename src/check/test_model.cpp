#include "check/test_model.h"

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
    all.push_back({kind, "grad." + p.name, {g, g + p.size}});
  }
  return all;
}

template std::vector<Tensor> tensors_of(Model<float>&, const Pass&);
template std::vector<Tensor> tensors_of(Model<double>&, const Pass&);

std::vector<double> scales_of(const std::vector<Tensor>& pass) {
  constexpr double share_of_largest = 0.03;
  double largest_site = 0, largest_gradient = 0;
  for (const Tensor& t : pass) {
    if (t.kind == Tensor::site_gradient) largest_site = std::max(largest_site, t.size());
    if (t.kind > Tensor::site_gradient) largest_gradient = std::max(largest_gradient, t.size());
  }
  std::vector<double> scales;
  for (const Tensor& t : pass) {
    const double largest = t.kind < Tensor::site_gradient    ? 0
                           : t.kind == Tensor::site_gradient ? largest_site
                                                             : largest_gradient;
    scales.push_back(std::max(t.size(), share_of_largest * largest));
  }
  return scales;
}

std::string chaotic_tensor(Model<double>& model, const Pass& batch, double rounding, double limit,
                           Tensor::Kind last) {
  const std::vector<Tensor> before = tensors_of(model, batch);
  const std::vector<double> scales = scales_of(before);
  const RandomStream stream(1, "rounded weights");
  std::vector<double>& weights = model.parameters.all();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= 1 + rounding * (2 * stream.uniform(i) - 1);
  const std::vector<Tensor> after = tensors_of(model, batch);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double moved = after[i].distance(before[i]);
    if (before[i].kind <= last && moved > limit * scales[i])
      return text("weights that differ by ", rounding, " move ", before[i].name, " by ", moved / scales[i]);
  }
  return "";
}

void Worst::add(const std::string& place, double error, double limit, double scale) {
  const double ratio = error == 0 ? 0 : error / limit;
  if (std::isnan(ratio_) || ratio <= ratio_) return;
  const double unit = scale > 0 && std::isfinite(scale) ? scale : 1;
  ratio_ = ratio;
  error_ = error / unit;
  limit_ = limit / unit;
  place_ = place;
}

Result vanishes(std::string law, const std::vector<Residue>& found, double least_scale) {
  Worst worst;
  for (const Residue& r : found) {
    const double scale = std::max(r.scale, least_scale);
    worst.add(r.place, std::abs(r.value), identity_limit * scale, scale);
  }
  return worst.result(std::move(law));
}

}  // namespace normscope
