// A step's gradient: the sum of its micro-batches' gradients along a fixed binary tree, whose left half is
// the larger. The tree depends only on their number, so any number of ranks computes the same bits: each rank
// computes neighbouring micro-batches and the nodes of the tree among them. Of the few nodes left per rank
// every rank receives its share of the parameters, and adds them along the tree.
#pragma once

#include <functional>
#include <vector>

#include "dist/shares.h"

namespace normscope {

// A node of the tree: micro-batches [begin, end).
struct TreeNode {
  Index begin, end;
  Index leaves() const { return end - begin; }
  TreeNode left() const { return {begin, begin + (leaves() + 1) / 2}; }
  TreeNode right() const { return {left().end, end}; }
  bool operator==(const TreeNode&) const = default;
};

// Appends the largest nodes under `node` that lie within `range`, in order.
void add_nodes_within(TreeNode node, TreeNode range, std::vector<TreeNode>& nodes);

class GradientSum {
 public:
  GradientSum(const ParameterLayout& layout, Index micro_batches, Communicator& ranks);

  const Shares& shares() const { return shares_; }
  std::span<const Index> cut() const { return cut_; }  // rank r computes micro-batches [cut[r], cut[r+1])

  // compute(i) puts micro-batch i's gradient into `gradients`. Afterwards this rank's share of `gradients`
  // holds their sum; the rest is undefined.
  void run(ParameterBlock<float>& gradients, const std::function<void(Index)>& compute);

 private:
  void sum(TreeNode node, ParameterBlock<float>& gradients, std::size_t depth,
           const std::function<void(Index)>& compute);
  void add(std::span<const Piece> pieces, const float* right, float* left) const;
  void exchange(const ParameterBlock<float>& gradients, std::size_t round);
  float* sum_parts(TreeNode node);

  TreeNode root_;
  Shares shares_;
  std::vector<Index> cut_;
  std::vector<std::vector<TreeNode>> nodes_;    // of each rank
  std::vector<ParameterBlock<float>> waiting_;  // by depth: the sum of the left node during that of the right
  std::vector<float> parts_;                    // this rank's share of every node of every rank, in order
  std::vector<Index> place_;
};

}  // namespace normscope
