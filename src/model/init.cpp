// Initialisation: one place that knows the scale of every tensor's first values.
#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "core/random.h"
#include "model/parameters.h"

namespace normscope {
namespace {

enum class Draw { normal, uniform };
struct Scale {
  Draw draw;
  double scale;  // standard deviation, or bound of a symmetric uniform
};

// Of a matrix (out, in). Glorot & Bengio 2010; He et al. 2015; GPT-2's fixed std.
Scale matrix_scale(const InitConfig& init, double out, double in) {
  switch (init.scheme) {
    case InitScheme::gpt2:
      return {Draw::normal, init.std};
    case InitScheme::xavier_normal:
      return {Draw::normal, std::sqrt(2 / (in + out))};
    case InitScheme::xavier_uniform:
      return {Draw::uniform, std::sqrt(6 / (in + out))};
    case InitScheme::kaiming_normal:
      return {Draw::normal, std::sqrt(2 / in)};
  }
  fail("init", "no code for scheme number ", static_cast<int>(init.scheme));
}

bool ends_with(const std::string& name, std::string_view tail) {
  return std::string_view(name).ends_with(tail);
}

// Of what is not drawn: gains 1, biases and ReZero's scales 0, DyT's alpha 0.5, running statistics 0 and 1.
double first_value(const std::string& name) {
  if (ends_with(name, ".alpha")) return 0.5;
  return ends_with(name, "norm.weight") || ends_with(name, ".running_var") ? 1.0 : 0.0;
}

template <class Real>
void draw_into(const RandomStream& stream, Scale scale, Index begin, Index end, Real* values) {
  parallel_blocks(end - begin, 4096, [&](Index first, Index last) {
    for (Index i = begin + first; i < begin + last; ++i) {
      const auto n = static_cast<std::uint64_t>(i);
      const double unit = scale.draw == Draw::normal ? stream.normal(n) : 2 * stream.uniform(n) - 1;
      values[i] = static_cast<Real>(unit * scale.scale);
    }
  });
}

}  // namespace

template <class Real>
void initialise(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                ParameterBlock<Real>& parameters) {
  const std::vector<const Placement*> placements = placements_of(config);
  const double residual_factor =
      config.init.residual_scaling ? 1 / std::sqrt(2.0 * static_cast<double>(config.n_layer)) : 1.0;

  for (const Parameter& p : layout.list()) {
    Real* values = parameters.at(p);
    if (!p.is_matrix()) {
      std::fill_n(values, p.size, static_cast<Real>(first_value(p.name)));
      continue;
    }
    const RandomStream stream(seed, p.name);
    if (p.layer == 0) {  // embed.token, embed.position
      draw_into(stream, {Draw::normal, config.init.embed_std}, 0, p.size, values);
      continue;
    }
    const bool is_qkv = ends_with(p.name, "attn.qkv.weight");
    const bool writes_stream = ends_with(p.name, "attn.out.weight") || ends_with(p.name, "ffn.out.weight");
    const bool in_block = p.name != "head.weight";
    const double out =
        static_cast<double>(is_qkv ? p.rows() / 3 : p.rows());  // q, k and v are matrices of their own
    Scale scale = matrix_scale(config.init, out, static_cast<double>(p.cols()));
    if (writes_stream) scale.scale *= residual_factor;
    Scale gained = scale;
    if (in_block) {
      gained.scale *= placements[p.layer - 1]->init_gain.of(config.n_layer);
    }
    // A placement's gain is for v and what follows it, not for q and k.
    const Index ungained = is_qkv ? p.size / 3 * 2 : 0;
    draw_into(stream, scale, 0, ungained, values);
    draw_into(stream, gained, ungained, p.size, values);
  }
}

template void initialise(const ModelConfig&, const ParameterLayout&, std::uint64_t, ParameterBlock<float>&);
template void initialise(const ModelConfig&, const ParameterLayout&, std::uint64_t, ParameterBlock<double>&);

}  // namespace normscope
