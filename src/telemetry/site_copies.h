// Copies of every site's value and gradient over one pass: for exchange files, and for checks that compare
// two passes.
#pragma once

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
  void on_value(Place place, const Matrix<Real>& value) override { copy(place, value, values); }
  void on_gradient(Place place, const Matrix<Real>& gradient) override { copy(place, gradient, gradients); }

  // Values in forward order, gradients in backward order.
  std::vector<SiteCopy<Real>> values, gradients;

 private:
  static void copy(Place place, const Matrix<Real>& x, std::vector<SiteCopy<Real>>& copies) {
    copies.push_back({place, x.rows, x.cols, {x.data, x.data + x.size()}});
  }
};

}  // namespace normscope
