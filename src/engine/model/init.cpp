// The initial values of all parameters.
#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "core/random.h"
#include "model/parameters.h"

namespace normscope {
namespace {

enum class Shape { normal, uniform };
struct Distribution {
  Shape shape;
  double scale;  // standard deviation, or bound of a symmetric uniform
};

// The distribution of a matrix (out, in). Glorot & Bengio 2010; He et al. 2015; GPT-2's fixed std.
Distribution matrix_distribution(const InitConfig& init, double out, double in) {
  switch (init.scheme) {
    case InitScheme::gpt2:
      return {Shape::normal, init.std};
    case InitScheme::xavier_normal:
      return {Shape::normal, std::sqrt(2 / (in + out))};
    case InitScheme::xavier_uniform:
      return {Shape::uniform, std::sqrt(6 / (in + out))};
    case InitScheme::kaiming_normal:
      return {Shape::normal, std::sqrt(2 / in)};
  }
  fail("init", "no code for scheme number ", static_cast<int>(init.scheme));
}

template <class Real>
void draw_into(const RandomStream& stream, Distribution distribution, Index begin, Index end, Real* values) {
  parallel_blocks(end - begin, 4096, [&](Index first, Index last) {
    for (Index i = begin + first; i < begin + last; ++i) {
      const double unit = distribution.shape == Shape::normal ? stream.normal(i) : 2 * stream.uniform(i) - 1;
      values[i] = static_cast<Real>(unit * distribution.scale);
    }
  });
}

// 1/sqrt(2L) on the matrices that write the stream with init.residual_scaling; else 1.
double residual_factor(const ModelConfig& config) {
  return config.init.residual_scaling ? 1 / std::sqrt(2.0 * static_cast<double>(config.n_layer)) : 1.0;
}

}  // namespace

template <class Real>
void initialise(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                ParameterBuffer<Real>& parameters) {
  for (const Parameter& p : layout.list()) {
    Real* values = parameters.at(p);
    const bool is_zero = p.role == Role::branch_output && config.init.zero_branches;
    if (is_zero || !p.is_drawn()) {
      std::fill_n(values, p.size, static_cast<Real>(p.start));
      continue;
    }
    const RandomStream stream(seed, p.name);
    if (p.role == Role::embedding) {
      draw_into(stream, {Shape::normal, config.init.embed_std}, 0, p.size, values);
      continue;
    }
    const bool is_qkv = p.role == Role::qkv;  // three matrices in one
    Distribution distribution = matrix_distribution(
        config.init, static_cast<double>(is_qkv ? p.rows() / 3 : p.rows()), static_cast<double>(p.cols()));
    if (p.role == Role::branch_output) distribution.scale *= residual_factor(config);
    const Index without_factor = is_qkv ? p.size / 3 * 2 : 0;
    draw_into(stream, distribution, 0, without_factor, values);
    distribution.scale *= p.init_factor;
    draw_into(stream, distribution, without_factor, p.size, values);
  }
}

template void initialise(const ModelConfig&, const ParameterLayout&, std::uint64_t, ParameterBuffer<float>&);
template void initialise(const ModelConfig&, const ParameterLayout&, std::uint64_t, ParameterBuffer<double>&);

}  // namespace normscope
