// Several ranks compute the bits that one does: gradients, losses, norms, statistics, updates, evaluations.
#include <bit>
#include <cmath>
#include <cstring>

#include "ranks_in_threads.h"
#include "tiny_model.h"
#include "train/step.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

struct Seen {
  std::vector<float> weights;
  std::vector<double> numbers;  // of every step: losses, norms, statistics, changes
};

bool same_bits(const auto& a, const auto& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

// Three steps of a run, as one of the ranks sees them.
Seen train(const RunConfig& config, const std::vector<Token>& text, Communicator& ranks) {
  TinyModel<float> model(config.model);
  Optimizer<float> optimizer(config.train, model.layout(), ranks);
  StepRunner runner(config, text, true, ranks);
  SiteStatistics statistics(shape_of(model));
  Seen outcome;
  for (Index step = 1; step <= 3; ++step) {
    statistics.clear();
    const StepResult& result = runner.compute(model, step, &statistics, /*measure_noise=*/true);
    outcome.numbers.push_back(result.loss);
    for (const double norm : result.norms.by_parameter) outcome.numbers.push_back(norm);
    for (const SiteRow& row : statistics.rows()) {
      outcome.numbers.insert(outcome.numbers.end(),
                             {row.mean, row.rms, row.abs_max, row.grad_rms, row.grad_norm, row.kurtosis,
                              row.dead.value_or(0), row.cos_in.value_or(0), row.branch_share.value_or(0)});
    }
    for (const HeadRow& row : statistics.head_rows()) {
      outcome.numbers.insert(outcome.numbers.end(),
                             {row.max_logit, row.entropy, row.first_share, row.q_rms, row.k_rms, row.v_rms});
    }
    outcome.numbers.push_back(result.noise_scale.value_or(0));
    for (const WeightChange& change : optimizer.update(step, 1e-2, clip_factor(1.0, result.norms.total),
                                                       model.gradients, model.parameters)) {
      outcome.numbers.push_back(change.before);
      outcome.numbers.push_back(change.change);
    }
    model.running.move(result.batch_moments);
    outcome.numbers.push_back(evaluate(model, text, 3, 0, ranks));
  }
  outcome.weights = model.parameters.all();
  return outcome;
}

}  // namespace

TEST_CASE("ranks: any number of them computes the bits that one does") {
  const std::vector<Token> text = integers(500, tiny_vocab, "text");
  RunConfig config;
  config.train.batch_size = 2;
  for (const NormKind norm : {NormKind::layernorm, NormKind::batchnorm}) {
    config.model = tiny_config(PlacementKind::pre, norm);
    config.model.dropout = 0.1;
    for (const Index micro_batches : {1, 2, 3, 5, 6, 7, 8}) {
      config.train.grad_accum = micro_batches;
      const Seen one = train(config, text, one_rank());
      CHECK(std::isfinite(one.numbers[0]));
      for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        if (ranks > micro_batches) continue;
        CAPTURE(ranks);
        CAPTURE(micro_batches);
        std::vector<Seen> several(static_cast<std::size_t>(ranks));
        RanksInThreads(ranks).run([&](Communicator& communicator) {
          several[static_cast<std::size_t>(communicator.rank())] = train(config, text, communicator);
        });
        for (const Seen& of_rank : several) {
          CHECK(same_bits(of_rank.weights, one.weights));
          CHECK(same_bits(of_rank.numbers, one.numbers));
        }
      }
    }
  }
}

TEST_CASE("ranks: shares cover every number once, whatever their number") {
  const ParameterLayout layout(tiny_config(), tiny_vocab);
  class Nth : public Communicator {
   public:
    Nth(int rank, int size) { rank_ = rank, size_ = size; }
  };
  for (int ranks = 1; ranks <= 40; ++ranks) {
    Index at = 0, pieces = 0;
    for (int r = 0; r < ranks; ++r) {
      Nth communicator(r, ranks);
      const Shares shares(layout, communicator);
      CHECK(shares.begin() == at);
      at += shares.size();
      pieces += std::ssize(shares.mine());
      for (const Piece& piece : shares.mine()) {
        CHECK(piece.begin >= shares.begin());
        CHECK(piece.begin + piece.count <= at);
      }
      if (r + 1 == ranks) CHECK(pieces == std::ssize(shares.pieces()));
    }
    CHECK(at == layout.block_size());
  }
}

TEST_CASE("ranks: the nodes of neighbours make the tree, which is of halves") {
  CHECK(TreeNode{0, 5}.left() == TreeNode{0, 3});
  CHECK(TreeNode{2, 8}.right() == TreeNode{5, 8});
  for (Index leaves = 1; leaves <= 33; ++leaves) {
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      const std::vector<Index> cut = even_cut(leaves, ranks);
      Index at = 0;
      for (std::size_t r = 0; r + 1 < cut.size(); ++r) {
        std::vector<TreeNode> nodes;
        add_nodes_within({0, leaves}, {cut[r], cut[r + 1]}, nodes);
        for (const TreeNode& node : nodes) {
          CHECK(node.begin == at);
          at = node.end;
        }
        if (std::has_single_bit(static_cast<unsigned>(ranks)) && leaves % ranks == 0 &&
            std::has_single_bit(static_cast<unsigned>(leaves)))
          CHECK(nodes.size() == 1);
      }
      CHECK(at == leaves);
    }
  }
}

TEST_CASE("gradient: micro-batches are added along the tree of halves") {
  const ParameterLayout layout(tiny_config(), tiny_vocab);
  ParameterBlock<float> gradients(layout);
  GradientSum sum(layout, 5, one_rank());
  const auto value = [](Index micro) { return micro == 0 ? 1e8f : 3.0f; };
  sum.run(gradients, [&](Index micro) { std::ranges::fill(gradients.all(), value(micro)); });
  const float tree = ((value(0) + value(1)) + value(2)) + (value(3) + value(4));
  const float chain = (((value(0) + value(1)) + value(2)) + value(3)) + value(4);
  CHECK(gradients.at(layout[0])[0] == tree);
  CHECK(tree != chain);
}
