#include "dist/gradient_sum.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/simd.h"

namespace normscope {

void add_nodes_within(TreeNode node, TreeNode range, std::vector<TreeNode>& nodes) {
  if (node.begin >= range.end || node.end <= range.begin) return;
  if (range.begin <= node.begin && node.end <= range.end) return nodes.push_back(node);
  add_nodes_within(node.left(), range, nodes);
  add_nodes_within(node.right(), range, nodes);
}

GradientSum::GradientSum(const ParameterLayout& layout, Index micro_batches, Communicator& ranks)
    : root_{0, micro_batches}, shares_(layout, ranks), cut_(even_cut(micro_batches, ranks.size())) {
  require(micro_batches >= ranks.size(), "gradient", micro_batches, " micro-batches for ", ranks.size(),
          " ranks");
  Index all = 0;
  for (std::size_t r = 0; r + 1 < cut_.size(); ++r) {
    add_nodes_within(root_, {cut_[r], cut_[r + 1]}, nodes_.emplace_back());
    all += std::ssize(nodes_.back());
  }
  const std::vector<TreeNode>& own = nodes_[ranks.rank()];
  Index leaves = std::ranges::max(own, {}, &TreeNode::leaves).leaves();
  for (; leaves > 1; leaves = (leaves + 1) / 2) waiting_.emplace_back(layout);
  place_.resize(nodes_.size());
  if (ranks.size() > 1) parts_.resize(all * shares_.size());
}

// left += right. Both begin at the first piece.
void GradientSum::add(std::span<const Piece> pieces, const float* right, float* left) const {
  parallel_for(std::ssize(pieces), [&](Index i) {
    const Piece& piece = pieces[i];
    const Index at = piece.begin - pieces.front().begin;
    kernels<float>().axpby(piece.count, 1.0f, right + at, 1.0f, left + at);
  });
}

void GradientSum::sum(TreeNode node, ParameterBlock<float>& gradients, std::size_t depth,
                      const std::function<void(Index)>& compute) {
  if (node.leaves() == 1) return compute(node.begin);
  sum(node.left(), gradients, depth + 1, compute);
  std::swap(gradients, waiting_[depth]);
  sum(node.right(), gradients, depth + 1, compute);
  std::swap(gradients, waiting_[depth]);
  add(shares_.pieces(), waiting_[depth].all().data(), gradients.all().data());
}

void GradientSum::run(ParameterBlock<float>& gradients, const std::function<void(Index)>& compute) {
  const Communicator& ranks = shares_.ranks();
  const std::vector<TreeNode>& own = nodes_[ranks.rank()];
  const std::size_t rounds = std::ranges::max_element(nodes_, {}, &std::vector<TreeNode>::size)->size();
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round < own.size()) sum(own[round], gradients, 0, compute);
    if (ranks.size() > 1) exchange(gradients, round);
  }
  if (ranks.size() == 1) return;
  std::copy_n(sum_parts(root_), shares_.size(), gradients.all().data() + shares_.begin());
}

// Exchanges every rank's node number `round`, if it has that many; the node's sum is in `gradients`.
void GradientSum::exchange(const ParameterBlock<float>& gradients, std::size_t round) {
  const Index lines = shares_.size() / floats_per_line;
  Index before = 0;
  for (std::size_t r = 0; r < nodes_.size(); ++r) {
    place_[r] = round < nodes_[r].size() ? (before + Index(round)) * lines : -1;
    before += std::ssize(nodes_[r]);
  }
  shares_.ranks().exchange(gradients.all().data(), shares_.cut(), place_, parts_.data());
}

// Computes the sum of a node in the place of its first part, and returns it.
float* GradientSum::sum_parts(TreeNode node) {
  float* part = parts_.data();
  for (const std::vector<TreeNode>& of_rank : nodes_) {
    for (const TreeNode& other : of_rank) {
      if (other == node) return part;
      part += shares_.size();
    }
  }
  float *left = sum_parts(node.left()), *right = sum_parts(node.right());
  if (!shares_.mine().empty()) add(shares_.mine(), right, left);
  return left;
}

}  // namespace normscope
