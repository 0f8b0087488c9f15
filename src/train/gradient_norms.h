// Norms of the gradient, of each tensor that params.csv has and of all, and the factor by which clipping multiplies it.
#pragma once

#include <string>
#include <vector>

#include "core/parallel.h"
#include "model/parameters.h"

namespace normscope {

// A tensor with a row in params.csv: a parameter, or the weights of queries, keys or values in
// attn.qkv.weight.
struct ParameterPart {
  int parameter;
  std::string name;
  Index offset, size;  // in numbers of a ParameterBuffer
};
std::vector<ParameterPart> parts_of(const ParameterLayout& layout);

// Sums over each part, in chunks of fixed size that are added in order: equal bits at any thread count.
template <class Sum>
class PartSums {
 public:
  struct Chunk {
    int part;
    Index begin, count;  // in numbers of a ParameterBuffer
  };

  explicit PartSums(const std::vector<ParameterPart>& parts);

  // Set sums[p] to the sum of measure_chunk(chunk) over the chunks of part p.
  template <class Measure>
  void measure(std::vector<Sum>& sums, Measure measure_chunk) {
    parallel_for(std::ssize(chunks_), [&](Index i) { by_chunk_[i] = measure_chunk(chunks_[i]); });
    sums.assign(parts_, Sum{});
    for (std::size_t i = 0; i < chunks_.size(); ++i) sums[chunks_[i].part] += by_chunk_[i];
  }

 private:
  std::size_t parts_;
  std::vector<Chunk> chunks_;
  std::vector<Sum> by_chunk_;
};

// Sizes (l2 norms) of the gradient before clipping, of each part and of all.
template <class Real>
class GradientNorms {
 public:
  explicit GradientNorms(const ParameterLayout& layout);

  void measure(const ParameterBuffer<Real>& gradients);

  std::vector<ParameterPart> parts;
  std::vector<double> by_part;
  double total = 0;

 private:
  PartSums<double> sums_;
};

// min(1, grad_clip / l2), l2 the size of the whole gradient; 1 if grad_clip is 0 (off).
double clip_factor(double grad_clip, double l2);

}  // namespace normscope
