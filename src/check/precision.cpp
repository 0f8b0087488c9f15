// The engine that trains (float, its SIMD, its fused attention, its GEMM) against the same model in double.
#include <algorithm>

#include "check/trial.h"
#include "config/names.h"

namespace normscope {
namespace {

constexpr double share_of_largest = 0.03;  // gradients below this part of the largest are compared with it

struct Compared {
  std::string name;
  double distance, size;
};

template <class A, class B>
Compared compare(std::string name, Index n, const A* a, const B* b) {
  double distance = 0, size = 0;
  for (Index i = 0; i < n; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    distance += difference * difference;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return {std::move(name), std::sqrt(distance), std::sqrt(size)};
}

std::vector<Compared> compare_sites(const char* what, const std::vector<SiteCopy<float>>& a,
                                    const std::vector<SiteCopy<double>>& b) {
  std::vector<Compared> all;
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i].place == b[i].place, "check", "float and double passed different sites");
    all.push_back(compare(text(what, a[i].place.layer, '.', name_of(a[i].place.site)), a[i].rows * a[i].cols,
                          a[i].data.data(), b[i].data.data()));
  }
  return all;
}

void add_worst(const std::vector<Compared>& all, double least_share, Worst& worst) {
  double largest = 0;
  for (const Compared& c : all) largest = std::max(largest, c.size);
  for (const Compared& c : all) {
    const double scale = std::max(c.size, least_share * largest);
    worst.add(c.distance == 0 ? 0 : c.distance / scale, c.name);
  }
}

}  // namespace

void prove_precision(const Subject& subject) {
  const ModelConfig config = without_dropout(subject.config.model);
  const Index vocab = subject.corpus.vocab.size();
  const GemmProvider provider = gemm_provider(subject.config.train);
  Model<float> trained(config, vocab, provider);
  const auto seed = static_cast<std::uint64_t>(subject.config.train.seed);
  initialise(config, trained.layout(), seed, trained.parameters);
  move_vectors(trained.layout(), seed, trained.parameters);
  Model<double> exact(config, vocab, GemmProvider::openblas);
  std::copy(trained.parameters.all().begin(), trained.parameters.all().end(), exact.parameters.all().begin());

  const TrialBatch batch = affordable_batch(subject);
  SiteCopies<float> sites;
  SiteCopies<double> exact_sites;
  const double loss = trained.loss_and_gradients(batch.view(), 1, {}, &sites);
  const double exact_loss = exact.loss_and_gradients(batch.view(), 1, {}, &exact_sites);

  Worst worst;
  worst.add(std::abs(loss - exact_loss) / std::abs(exact_loss), "loss");
  add_worst(compare_sites("act.", sites.values, exact_sites.values), 0, worst);
  add_worst(compare_sites("act_grad.", sites.gradients, exact_sites.gradients), share_of_largest, worst);
  std::vector<Compared> gradients;
  for (const Parameter& p : exact.layout().list()) {
    if (!p.trainable) continue;
    gradients.push_back(compare("grad." + p.name, p.size, trained.gradients.at(p), exact.gradients.at(p)));
  }
  add_worst(gradients, share_of_largest, worst);
  subject.report({text("the engine that trains (", name_of(subject.config.train.precision),
                       ") equals the one in double: loss, sites, gradients"),
                  worst.error, subject.config.train.precision == Precision::bf16 ? 5e-2 : 1e-4, worst.place});
}

}  // namespace normscope
