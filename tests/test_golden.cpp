// The engine against PyTorch's float64 results in tests/golden (tests/make_goldens.py).
#include <filesystem>
#include <map>
#include <string>

#include "config/load.h"
#include "data/corpus.h"
#include "helpers.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "train/optimizer.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

const std::filesystem::path folder = std::filesystem::path(NORMSCOPE_SOURCE_DIR) / "tests" / "golden";

std::vector<std::string> golden_files(bool trajectories) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() != ".safetensors") continue;
    if (name.starts_with("trajectory_") == trajectories) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A golden file, its config, and a model with its parameters.
template <class Real>
struct Golden {
  explicit Golden(const std::string& name, GemmProvider provider = GemmProvider::openblas)
      : file((folder / (name + ".safetensors")).string()),
        config(load_config_text(file.metadata().at("config"), name, {}, {.need_data = false}).config),
        model(config.model, Vocabulary::from_json(file.metadata().at("vocab"), name).size(), provider) {
    for (const Parameter& p : model.layout().list()) {
      CHECK(file.at(p.name).shape == p.shape);
      file.read_into(p.name, model.parameters.at(p), p.size);
    }
    for (const Parameter& p : model.layout().buffers())
      file.read_into(p.name, model.running.values.data() + p.offset, p.size);
    tokens = integers("tokens");
    targets = integers("targets");
  }

  std::vector<std::int32_t> integers(const char* name) const {
    std::vector<std::int64_t> wide(static_cast<std::size_t>(file.at(name).count));
    file.read_into(name, wide.data(), std::ssize(wide));
    return {wide.begin(), wide.end()};
  }
  std::vector<double> doubles(const std::string& name) const {
    std::vector<double> values(static_cast<std::size_t>(file.at(name).count));
    file.read_into(name, values.data(), std::ssize(values));
    return values;
  }

  SafetensorsFile file;
  RunConfig config;
  Model<Real> model;
  std::vector<std::int32_t> tokens, targets;
};

// Every site's value and gradient, under the names of an exchange file.
template <class Real>
struct Sites : TapListener<Real> {
  std::map<std::string, std::vector<double>> tensors;
  void put(const char* kind, SiteId id, const Matrix<Real>& x) {
    const std::string name = std::string(kind) + std::to_string(id.layer) + "." + name_of(id.site);
    CHECK(!tensors.contains(name));
    tensors[name].assign(x.data, x.data + x.size());
  }
  void on_value(SiteId id, const Matrix<Real>& value) override { put("act.", id, value); }
  void on_gradient(SiteId id, const Matrix<Real>& gradient) override { put("act_grad.", id, gradient); }
};

// |a - b| / max(|b|, floor).
double distance(const std::vector<double>& a, const std::vector<double>& b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  std::vector<double> difference(a);
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return norm(difference) / std::max(norm(b), floor);
}

template <class Real>
void compare_exchange(const std::string& name, GemmProvider provider, double tolerance) {
  CAPTURE(name);
  Golden<Real> golden(name, provider);
  Model<Real>& model = golden.model;
  Sites<Real> sites;
  std::vector<Real> logits;
  const double loss = model.loss_and_gradients({golden.tokens, golden.targets, golden.config.model.context},
                                               1, &sites, &logits);
  auto got = sites.tensors;
  got["logits"].assign(logits.begin(), logits.end());
  got["loss"] = {loss};
  for (const Parameter& p : model.layout().list()) {
    got["grad." + p.name].assign(model.gradients.at(p), model.gradients.at(p) + p.size);
  }

  // Gradients that are 0 in theory have no relative error: the floor is a share of the largest of their kind.
  std::map<std::string, double> largest;
  const auto kind = [](const std::string& tensor) { return tensor.substr(0, tensor.find('.')); };
  for (const auto& [tensor, values] : got) {
    if (!kind(tensor).ends_with("grad")) continue;
    double& most = largest[kind(tensor)];
    most = std::max(most, norm(golden.doubles(tensor)));
  }
  for (const auto& entry : got) {
    const std::string& tensor = entry.first;
    CAPTURE(tensor);
    const double error = distance(entry.second, golden.doubles(tensor), 0.03 * largest[kind(tensor)]);
    CHECK_FALSE(!(error <= tolerance));
  }
  // The file holds nothing that the engine has not got: the parameters, the batch, and the tensors above.
  CHECK(golden.file.tensors().size() ==
        model.layout().list().size() + model.layout().buffers().size() + 2 + got.size());
}

template <class Real>
void compare_trajectory(const std::string& name, double tolerance) {
  CAPTURE(name);
  Golden<Real> golden(name);
  Model<Real>& model = golden.model;
  const TrainConfig& train = golden.config.train;
  Optimizer<Real> optimizer(train, model.layout());
  const std::vector<double> rates = golden.doubles("lrs"), losses = golden.doubles("losses");
  const std::vector<double> want_norms = golden.doubles("grad_norms");
  GradientNorms<Real> norms(model.layout());
  const auto batch_size = static_cast<std::size_t>(train.batch_size * golden.config.model.context);
  REQUIRE(static_cast<Index>(rates.size()) == train.steps);
  int clipped = 0;
  for (Index step = 1; step <= train.steps; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    const std::span<const std::int32_t> tokens(golden.tokens), targets(golden.targets);
    model.gradients.clear();
    const double loss =
        model.loss_and_gradients({tokens.subspan(i * batch_size, batch_size),
                                  targets.subspan(i * batch_size, batch_size), golden.config.model.context});
    norms.measure(model.gradients);
    const double total = norms.total;
    const double lr = learning_rate(train, step), clip = clip_factor(train.grad_clip, total);
    clipped += clip < 1;
    CAPTURE(step);
    CHECK(std::abs(lr - rates[i]) <= 1e-15);
    CHECK(std::abs(loss - losses[i]) <= tolerance * losses[i]);
    CHECK(std::abs(total - want_norms[i]) <= tolerance * 10 * want_norms[i]);
    optimizer.update(step, lr, clip, model.gradients, model.parameters);
    model.running.move(model.running.batch);
  }
  CHECK(clipped > 0);
  CHECK(clipped < train.steps);
  for (const Parameter& p : model.layout().list()) {
    const Real* values = model.parameters.at(p);
    CAPTURE(p.name);
    CHECK(distance({values, values + p.size}, golden.doubles("final." + p.name), 0) <= tolerance);
  }
  for (const Parameter& p : model.layout().buffers()) {
    const Real* values = model.running.values.data() + p.offset;
    CAPTURE(p.name);
    CHECK(distance({values, values + p.size}, golden.doubles("final." + p.name), 0) <= tolerance);
  }
}

}  // namespace

TEST_CASE("golden: values, gradients and loss of every placement equal PyTorch's") {
  const std::vector<std::string> names = golden_files(false);
  CHECK(names.size() >= 13);
  for (const std::string& name : names) {
    for (const GemmProvider provider : {GemmProvider::openblas, GemmProvider::native}) {
      compare_exchange<double>(name, provider, 1e-8);
      compare_exchange<float>(name, provider, 1e-4);
    }
  }
}

TEST_CASE("golden: ten updates equal PyTorch's") {
  const std::vector<std::string> names = golden_files(true);
  CHECK(names.size() >= 5);
  for (const std::string& name : names) {
    compare_trajectory<double>(name, 1e-8);
    compare_trajectory<float>(name, name == "trajectory_muon" ? 1e-5 : 1e-4);
  }
}
