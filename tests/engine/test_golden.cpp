// The engine against PyTorch's float64 results in tests/golden (tests/tools/make_goldens.py).
#include <filesystem>
#include <map>
#include <string>

#include "check/check.h"
#include "config/load.h"
#include "data/corpus.h"
#include "helpers.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "train/learning_rate.h"
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
  }

  template <class Number>
  std::vector<Number> numbers(const std::string& name) const {
    std::vector<Number> all(static_cast<std::size_t>(file.at(name).count));
    file.read_into(name, all.data(), std::ssize(all));
    return all;
  }
  std::vector<std::int32_t> ids(const char* name) const {
    const std::vector<std::int64_t> wide = numbers<std::int64_t>(name);
    return {wide.begin(), wide.end()};
  }

  SafetensorsFile file;
  RunConfig config;
  Model<Real> model;
  std::vector<std::int32_t> tokens = ids("tokens"), targets = ids("targets");
};

// |a - b| / max(|b|, floor).
double distance(const std::vector<double>& a, const std::vector<double>& b, double floor = 0) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  return l2_distance(a, b) / std::max(norm(b), floor);
}

template <class Real>
void compare_exchange(const std::string& name, GemmProvider provider, double tolerance) {
  CAPTURE(name);
  Golden<Real> golden(name, provider);
  const ModelConfig& config = golden.config.model;
  Tensors computed = tensors_of(golden.model, Pass{golden.tokens, golden.targets, config.context});
  computed["logits"] = computed.at(text("act.", config.n_layer + 1, ".logits"));

  // Gradients that are 0 in theory have no relative error: the floor is a share of the largest of their kind.
  std::map<std::string, double> largest;
  const auto kind = [](const std::string& tensor) { return tensor.substr(0, tensor.find('.')); };
  for (const auto& [tensor, values] : computed) {
    double& most = largest[kind(tensor)];
    if (kind(tensor).ends_with("grad")) most = std::max(most, norm(golden.template numbers<double>(tensor)));
  }
  for (const auto& [tensor, values] : computed) {
    CAPTURE(tensor);
    const double floor = 0.03 * largest[kind(tensor)];
    CHECK(distance(values, golden.template numbers<double>(tensor), floor) <= tolerance);
  }
  // The file holds nothing else than the engine has: the parameters, the batch, and the tensors above.
  const ParameterLayout& layout = golden.model.layout();
  CHECK(golden.file.tensors().size() == layout.list().size() + layout.buffers().size() + 2 + computed.size());
}

template <class Real>
void compare_trajectory(const std::string& name, double tolerance) {
  CAPTURE(name);
  Golden<Real> golden(name);
  Model<Real>& model = golden.model;
  const TrainConfig& train = golden.config.train;
  const Index context = golden.config.model.context;
  Optimizer<Real> optimizer(train, model.layout());
  const auto rates = golden.template numbers<double>("lrs"),
             losses = golden.template numbers<double>("losses"),
             expected_norms = golden.template numbers<double>("grad_norms");
  GradientNorms<Real> norms(model.layout());
  const auto batch_size = static_cast<std::size_t>(train.batch_size * context);
  REQUIRE(std::ssize(rates) == train.steps);
  int clipped = 0;
  for (Index step = 1; step <= train.steps; ++step) {
    CAPTURE(step);
    const auto i = static_cast<std::size_t>(step - 1);
    const auto batch = [&](const std::vector<std::int32_t>& all) {
      return std::span(all).subspan(i * batch_size, batch_size);
    };
    model.gradients.clear();
    const double loss = model.loss_and_gradients({batch(golden.tokens), batch(golden.targets), context});
    norms.measure(model.gradients);
    const double lr = learning_rate(train, step), clip = clip_factor(train.grad_clip, norms.total);
    clipped += clip < 1;
    CHECK(std::abs(lr - rates[i]) <= 1e-15);
    CHECK(std::abs(loss - losses[i]) <= tolerance * losses[i]);
    CHECK(std::abs(norms.total - expected_norms[i]) <= tolerance * 10 * expected_norms[i]);
    optimizer.update(step, lr, clip, model.gradients, model.parameters);
    model.running.move(model.running.batch);
  }
  CHECK(clipped > 0);
  CHECK(clipped < train.steps);
  const auto check_final = [&](const Parameter& p, const Real* values) {
    CAPTURE(p.name);
    CHECK(distance({values, values + p.size}, golden.template numbers<double>("final." + p.name)) <=
          tolerance);
  };
  for (const Parameter& p : model.layout().list()) check_final(p, model.parameters.at(p));
  for (const Parameter& p : model.layout().buffers()) check_final(p, model.running.values.data() + p.offset);
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
