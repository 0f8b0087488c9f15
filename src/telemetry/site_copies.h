// Copies of every site's value and gradient over one pass: for exchange files, and for checks that compare
// two passes.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/tape.h"
#include "core/site.h"

namespace normscope {

// One site's tensor: (rows, cols), rows = B*T.
template <class Real>
struct SiteCopy {
  Place place;
  Index rows, cols;
  std::vector<Real> data;
};

template <class Real>
class SiteCopies : public TapListener<Real> {
 public:
  void on_value(Place place, const Real* value, Index rows, Index cols) override {
    values.push_back({place, rows, cols, {value, value + rows * cols}});
  }
  void on_gradient(Place place, const Real* gradient, Index rows, Index cols) override {
    gradients.push_back({place, rows, cols, {gradient, gradient + rows * cols}});
  }

  const SiteCopy<Real>& value(Place place) const { return find(values, place); }
  const SiteCopy<Real>& gradient(Place place) const { return find(gradients, place); }

  // In the order in which they were heard: values forwards, gradients backwards.
  std::vector<SiteCopy<Real>> values, gradients;

 private:
  static const SiteCopy<Real>& find(const std::vector<SiteCopy<Real>>& copies, Place place) {
    const auto found = std::find_if(copies.begin(), copies.end(),
                                    [&](const SiteCopy<Real>& copy) { return copy.place == place; });
    require(found != copies.end(), "telemetry", "nothing was heard of ", name_of(place.site), " of layer ",
            place.layer);
    return *found;
  }
};

}  // namespace normscope
