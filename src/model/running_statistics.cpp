#include "model/running_statistics.h"

#include <algorithm>

#include "core/error.h"

namespace normscope {

template <class Real>
RunningStatistics<Real>::RunningStatistics(const ParameterLayout& layout)
    : values(layout.buffer_size()), batch(values.size()) {
  for (const Parameter& p : layout.buffers())
    std::fill_n(values.data() + p.offset, p.size, static_cast<Real>(first_value(p.role)));
}

template <class Real>
void RunningStatistics<Real>::move(std::span<const Real> batches) {
  require(values.empty() ? batches.empty() : batches.size() % values.size() == 0, "running statistics",
          batches.size(), " numbers of batches for ", values.size(), " buffers");
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Real& value = values[i % values.size()];
    value += static_cast<Real>(running_momentum) * (batches[i] - value);
  }
}

template struct RunningStatistics<float>;
template struct RunningStatistics<double>;

}  // namespace normscope
