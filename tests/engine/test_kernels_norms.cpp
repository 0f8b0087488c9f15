// The fast kernels of norms against their naive twins.
#include "helpers.h"
#include "kernels/rows.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// What a norm reads, and what its gradients are added to. dx is NaN where beta is 0, as it must not be read.
template <class Real>
struct NormInputs {
  Index rows, cols;
  bool has_gain = true, has_bias = true;
  Real beta = 0;

  std::vector<Real> x = floats<Real>(rows * cols, "x", 1.5, 0.7);
  std::vector<Real> gain = floats<Real>(cols, "gain", 0.4, 1), bias = floats<Real>(cols, "bias");
  std::vector<Real> dy = floats<Real>(rows * cols, "dy");
  std::vector<Real> dx = beta == 0 ? nans<Real>(rows * cols) : floats<Real>(rows * cols, "old dx");
  std::vector<Real> dgain = floats<Real>(cols, "old dgain"), dbias = floats<Real>(cols, "old dbias");

  const Real* gain_or_null() const { return has_gain ? gain.data() : nullptr; }
  const Real* bias_or_null() const { return has_bias ? bias.data() : nullptr; }

  // Places for y and the gradients.
  Outputs<Real> outputs() const {
    return {{"y", nans<Real>(rows * cols)}, {"dx", dx}, {"dgain", dgain}, {"dbias", dbias}};
  }
  NormGradients<Real> gradients(Outputs<Real>& out) const {
    return {dy.data(), out["dx"].data(), beta, has_gain ? out["dgain"].data() : nullptr,
            has_bias ? out["dbias"].data() : nullptr};
  }
};

// The forward and the backward of a norm that keeps `statistics` means and reciprocal deviations.
template <class Norm, class Real, class Forward, class Backward>
Outputs<Real> run_norm(Norm norm, const NormInputs<Real>& in, Index statistics, Forward forward,
                       Backward backward) {
  Outputs<Real> out = in.outputs();
  out["mean"] = out["rstd"] = nans<Real>(statistics);
  norm.rows = in.rows, norm.cols = in.cols, norm.x = in.x.data();
  norm.gain = in.gain_or_null(), norm.bias = in.bias_or_null();
  norm.mean = out["mean"].data(), norm.rstd = out["rstd"].data();
  forward(norm, out["y"].data());
  backward(norm, in.gradients(out));
  return out;
}
template <class Real>
Outputs<Real> layer_norm(LayerNorm<Real> norm, const NormInputs<Real>& in) {
  norm.stride = in.cols;
  return run_norm(norm, in, in.rows * norm.groups, layer_norm_forward<Real>, layer_norm_backward<Real>);
}
template <class Real>
Outputs<Real> batch_norm(BatchNorm<Real> norm, const NormInputs<Real>& in) {
  const Index statistics = in.rows / norm.group_rows * in.cols;
  return run_norm(norm, in, statistics, batch_norm_forward<Real>, batch_norm_backward<Real>);
}

template <class Real>
Outputs<Real> pointwise_norm(PointwiseFn function, const NormInputs<Real>& in) {
  Outputs<Real> out = in.outputs();
  out["dalpha"] = {Real(0.5)}, out["dshift"] = {Real(-0.5)};
  const PointwiseNorm<Real> norm{.rows = in.rows,
                                 .cols = in.cols,
                                 .alpha = Real(0.5),
                                 .x = in.x.data(),
                                 .gain = in.gain_or_null(),
                                 .bias = in.bias_or_null(),
                                 .function = function,
                                 .shift = Real(function == PointwiseFn::erf ? 0.25 : 0)};
  pointwise_norm_forward(norm, out["y"].data());
  NormGradients<Real> gradients = in.gradients(out);
  gradients.dalpha = out["dalpha"].data(), gradients.dshift = out["dshift"].data();
  pointwise_norm_backward(norm, gradients);
  return out;
}

}  // namespace

TEST_CASE("kernel: norms of rows equal their twin") {
  const struct {
    Index rows;
    bool has_gain, has_bias;
    float beta;
    bool detached = false, shared_gain = false;
  } variants[] = {{5, true, true, 0},  {5, true, false, 0},      {5, false, false, 1},
                  {130, true, true, 1}, {5, true, true, 1, true}, {5, true, false, 1, false, true}};
  for (const Index cols : {1, 3, 16, 17, 64, 100, 384}) {
    for (const Index groups : {1, 4}) {
      if (cols % groups != 0) continue;
      for (const bool centred : {true, false}) {
        for (const bool outside : {false, true}) {
          for (const auto& variant : variants) {
            INFO(cols, " columns, ", groups, " groups, centred ", centred, ", eps outside the root ", outside,
                 ", variant ", &variant - variants);
            const auto norm = [&](auto real) {
              using Real = decltype(real);
              // An RMS norm of one number is nearly constant unless eps is large: dx would be a difference's
              // rounding.
              return layer_norm<Real>({.groups = groups,
                                       .centred = centred,
                                       .eps = Real(cols == 1 ? 1.0f : 0.01f),
                                       .eps_outside = outside,
                                       .shared_gain = variant.shared_gain,
                                       .detached = variant.detached},
                                      {variant.rows, cols, variant.has_gain, variant.has_bias, variant.beta});
            };
            compare_with_twin(norm, 2e-6);
          }
        }
      }
    }
  }
}

TEST_CASE("kernel: norms of columns, dynamic tanh and erf equal their twins") {
  for (const Index cols : {5, 17, 100}) {
    for (const bool affine : {true, false}) {
      for (const Index rows : {6, 130}) {
        INFO(rows, " rows, ", cols, " columns, affine ", affine);
        const auto inputs = [&](auto real) {
          return NormInputs<decltype(real)>{rows, cols, affine, affine, affine ? 0.0f : 1.0f};
        };
        for (const bool outside : {false, true}) {
          for (const Index group_rows : {rows, rows / 2}) {
            const auto norm = [&](auto real) {
              using Real = decltype(real);
              return batch_norm<Real>({group_rows, Real(0.01f), outside}, inputs(real));
            };
            compare_with_twin(norm, 5e-6);
          }
        }
        for (const PointwiseFn function : {PointwiseFn::tanh, PointwiseFn::erf})
          compare_with_twin([&](auto real) { return pointwise_norm(function, inputs(real)); }, 5e-6);
      }
    }
  }
}

TEST_CASE("kernel: norms of a row far from zero keep their accuracy") {
  const auto norm = [](auto real) {
    using Real = decltype(real);
    NormInputs<Real> in{3, 100};
    for (Real& x : in.x) x = static_cast<float>(x) + 1000.0f;  // two passes: no difference of large squares
    return layer_norm<Real>({.eps = Real(1e-5f)}, in);
  };
  compare_with_twin(norm, 2e-4);
}

TEST_CASE_TEMPLATE("kernel: a norm of equal numbers is its bias, however small eps is", Real, float, double) {
  for (const Real value : {Real(0), Real(3), Real(3.3), Real(-0.7), Real(1e6 / 3)}) {
    for (const bool outside : {false, true}) {
      NormInputs<Real> row{2, 192}, column{192, 1, false, false};
      std::fill(row.x.begin(), row.x.end(), value);
      std::fill(column.x.begin(), column.x.end(), value);
      const Outputs<Real> of_row = layer_norm<Real>({.eps = Real(1e-12), .eps_outside = outside}, row);
      const std::vector<Real>& y = of_row.at("y");
      for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == row.bias[i % row.bias.size()]);
      CHECK(all_finite(of_row.at("dx")));
      CHECK(batch_norm<Real>({192, Real(1e-12), outside}, column).at("y") == std::vector<Real>(192));
    }
  }
}

// The mean of x is rounded to a float: so far from zero, x̂ is off by a thousandth. Yet what a norm sends back
// sums to nothing, as it does exactly.
TEST_CASE_TEMPLATE("kernel: the gradient of a norm's input sums to 0 also where rows lie far from zero", Real,
                   float, double) {
  const Index n = 100;
  NormInputs<Real> row{1, n, false, false}, column{n, 1, false, false};
  for (Real& x : row.x) x = Real(1000) + x / 100;
  column.x = row.x;
  for (const Outputs<Real>& out :
       {layer_norm<Real>({.eps = Real(1e-12)}, row), batch_norm<Real>({n, Real(1e-12)}, column)}) {
    double sum = 0, size = 0;
    for (const Real d : out.at("dx")) sum += d, size += std::abs(d);
    CHECK(std::abs(sum) <= pick<Real>(2e-6, 1e-14) * size);
  }
}

TEST_CASE_TEMPLATE("kernel: a NaN or an infinity spoils its own row of a norm and no other", Real, float,
                   double) {
  for (const double bad : {std::nan(""), infinity, -infinity}) {
    for (const Index column : {0, 15, 16}) {
      NormInputs<Real> in{3, 17};
      in.x[17 + column] = static_cast<Real>(bad);
      const Outputs<Real> out = layer_norm<Real>({.eps = Real(1e-5)}, in);
      for (std::size_t i = 0; i < in.x.size(); ++i) {
        CHECK(std::isnan(out.at("y")[i]) == (i / 17 == 1));
        CHECK(std::isnan(out.at("dx")[i]) == (i / 17 == 1));
      }
    }
  }
}
