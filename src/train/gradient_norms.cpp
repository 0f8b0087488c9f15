#include "train/gradient_norms.h"

#include <algorithm>
#include <cmath>

#include "kernels/simd.h"
#include "kernels/update_rules.h"

namespace normscope {

std::vector<ParameterPart> parts_of(const ParameterLayout& layout) {
  std::vector<ParameterPart> parts;
  for (int i = 0; i < static_cast<int>(layout.list().size()); ++i) {
    const Parameter& p = layout[i];
    if (p.role != Role::qkv) {
      parts.push_back({i, p.name, p.offset, p.size});
      continue;
    }
    const Index third = p.size / 3;
    Index offset = p.offset;
    for (const char* name : {"q", "k", "v"}) {
      parts.push_back({i, p.name, offset, third});
      parts.back().name.replace(p.name.rfind("qkv"), 3, name);
      offset += third;
    }
  }
  return parts;
}

template <class Sum>
PartSums<Sum>::PartSums(const std::vector<ParameterPart>& parts) : parts_(parts.size()) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (Index begin = 0; begin < parts[i].size; begin += elements_per_block)
      chunks_.push_back({static_cast<int>(i), parts[i].offset + begin,
                         std::min(elements_per_block, parts[i].size - begin)});
  }
  by_chunk_.resize(chunks_.size());
}

template <class Real>
GradientNorms<Real>::GradientNorms(const ParameterLayout& layout) : parts(parts_of(layout)), sums_(parts) {}

template <class Real>
void GradientNorms<Real>::measure(const ParameterBuffer<Real>& gradients) {
  sums_.measure(by_part, [&](const auto& chunk) {
    return kernels<Real>().sum_squares(chunk.count, gradients.all().data() + chunk.begin);
  });
  double squares = 0;
  for (std::size_t i = 0; i < by_part.size(); ++i) {
    double& square = by_part[i];
    squares += square;
    square = std::sqrt(square);
  }
  total = std::sqrt(squares);
}

double clip_factor(double grad_clip, double l2) {
  return grad_clip > 0 && l2 > grad_clip ? grad_clip / l2 : 1.0;
}

template class PartSums<WeightChange>;  // of the optimiser
template class GradientNorms<float>;
template class GradientNorms<double>;

}  // namespace normscope
