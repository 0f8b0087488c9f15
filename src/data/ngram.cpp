#include "data/ngram.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace normscope {
namespace {

constexpr double smoothing = 0.1;
constexpr std::size_t longest = 4;  // n of the longest n-gram

// Every n-gram of a text up to `longest`, as a tree: a node is a string, its children are that string and one
// more character. Edges lie in one open-addressing hash table, keyed by parent and character, so that a
// vocabulary of 65 and one of 100,000 cost the same.
class NgramTree {
 public:
  struct Node {
    std::int64_t count = 0;     // how often this string occurs
    std::int64_t followed = 0;  // how often with a character after it
  };
  static constexpr std::uint64_t root = 0;

  explicit NgramTree(std::span<const Token> text) : nodes_(1), edges_(std::size_t{1} << 16) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::uint64_t node = root;
      for (const Token token : text.subspan(i, std::min(longest, text.size() - i))) {
        const std::uint64_t child = child_or_new(node, token);
        ++nodes_[node].followed;
        ++nodes_[child].count;
        node = child;
      }
    }
  }

  const Node& operator[](std::uint64_t node) const { return nodes_[node]; }

  std::optional<std::uint64_t> child(std::uint64_t node, Token token) const {
    const Edge& edge = edges_[place(key_of(node, token))];
    return edge.child == root ? std::nullopt : std::optional(edge.child);
  }

 private:
  struct Edge {
    std::uint64_t key = 0;
    std::uint64_t child = root;  // the root is nobody's child: a free place
  };

  // Code points, and so tokens, are below 2^21.
  static std::uint64_t key_of(std::uint64_t node, Token token) {
    return node << 21 | static_cast<std::uint64_t>(token);
  }

  // Where `key` is, or the free place where it would go. The table is never full.
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = edges_.size() - 1;
    std::size_t at =
        (key * 0x9E3779B97F4A7C15ULL) >> 20 & mask;  // the product's middle bits depend on all of key's
    while (edges_[at].child != root && edges_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::uint64_t child_or_new(std::uint64_t node, Token token) {
    if (2 * nodes_.size() > edges_.size()) grow();
    Edge& edge = edges_[place(key_of(node, token))];
    if (edge.child == root) {
      edge = {key_of(node, token), nodes_.size()};
      nodes_.emplace_back();
    }
    return edge.child;
  }

  void grow() {
    std::vector<Edge> old(4 * edges_.size());
    old.swap(edges_);
    for (const Edge& edge : old) {
      if (edge.child != root) edges_[place(edge.key)] = edge;
    }
  }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
};

// -log p(last character of `string` | the ones before).
double surprise(const NgramTree& tree, std::span<const Token> string, double smoothing_mass) {
  std::optional<std::uint64_t> node = NgramTree::root;
  for (const Token token : string.first(string.size() - 1)) node = node ? tree.child(*node, token) : node;
  const std::optional<std::uint64_t> next = node ? tree.child(*node, string.back()) : node;
  const auto seen = static_cast<double>(next ? tree[*next].count : 0);
  const auto of = static_cast<double>(node ? tree[*node].followed : 0);
  return std::log((of + smoothing_mass) / (seen + smoothing));
}

}  // namespace

std::array<NgramLoss, 5> ngram_baselines(std::span<const Token> train, std::span<const Token> text,
                                         Index vocabulary) {
  require(text.size() >= 2 && vocabulary >= 1, "n-gram", text.size(), " characters; expected at least 2");
  std::array<NgramLoss, 5> losses = {{{"uniform", std::log(static_cast<double>(vocabulary))},
                                      {"unigram", 0},
                                      {"bigram", 0},
                                      {"trigram", 0},
                                      {"4-gram", 0}}};
  losses[1].nats = unigram_loss(train, text, vocabulary);
  const NgramTree tree(train);
  for (std::size_t n = 2; n <= longest; ++n) {
    double total = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
      const std::size_t length = std::min(n, i + 1);
      total +=
          surprise(tree, text.subspan(i + 1 - length, length), smoothing * static_cast<double>(vocabulary));
    }
    losses[n].nats = total / static_cast<double>(text.size() - 1);
  }
  return losses;
}

double unigram_loss(std::span<const Token> train, std::span<const Token> text, Index vocabulary) {
  std::vector<double> nats(static_cast<std::size_t>(vocabulary), 0.0);  // counts first
  for (const Token token : train) ++nats[static_cast<std::size_t>(token)];
  const double all = static_cast<double>(train.size()) + smoothing * static_cast<double>(vocabulary);
  for (double& count : nats) count = std::log(all / (count + smoothing));
  double total = 0;
  for (const Token token : text.subspan(1)) total += nats[static_cast<std::size_t>(token)];
  return total / static_cast<double>(text.size() - 1);
}

}  // namespace normscope
