#include "model/model.h"

namespace normscope {

template <class Real>
double Model<Real>::loss_and_gradients(const TokenBatch& batch, Real cotangent, const StepPart& part,
                                       TapListener<Real>* listener, std::vector<Real>* logits) {
  tape.reset();
  tape.set_listener(listener);
  const Pass<Real> pass{batch.tokens, batch.context, part.training, part.dropout_stream, part.first_sequence};
  const Var<Real> scores = transformer.logits(tape, parameters, &gradients, pass);
  const Var<Real> loss = cross_entropy(tape, scores, batch.targets);
  if (logits != nullptr) logits->assign(scores.value, scores.value + scores.size());
  tape.backward(loss, cotangent);
  tape.set_listener(nullptr);
  return static_cast<double>(*loss.value);
}

template <class Real>
double Model<Real>::loss(const TokenBatch& batch, TapListener<Real>* listener) {
  tape.reset(false);
  tape.set_listener(listener);
  Pass<Real> pass{batch.tokens, batch.context};
  pass.by_running_statistics = true;
  const Var<Real> scores = transformer.logits(tape, parameters, nullptr, pass);
  tape.set_listener(nullptr);
  return static_cast<double>(*cross_entropy(tape, scores, batch.targets).value);
}

template <class Real>
std::span<const Real> Model<Real>::decode(std::span<const std::int32_t> tokens, KeyValueCache<Real>& cache) {
  require(cache.length + static_cast<Index>(tokens.size()) <= config().context, "decode", "the cache holds ",
          cache.length, " of ", config().context, " positions; ", tokens.size(), " more do not fit");
  tape.reset(false);
  Pass<Real> pass{tokens, static_cast<Index>(tokens.size())};
  pass.by_running_statistics = true;
  pass.cache = &cache;
  const Var<Real> scores = transformer.logits(tape, parameters, nullptr, pass);
  return {scores.value, static_cast<std::size_t>(scores.size())};
}

template <class Real>
std::span<const Real> Model<Real>::forward(std::span<const std::int32_t> tokens) {
  tape.reset(false);
  Pass<Real> pass{tokens, static_cast<Index>(tokens.size())};
  pass.by_running_statistics = true;
  const Var<Real> scores = transformer.logits(tape, parameters, nullptr, pass);
  return {scores.value, static_cast<std::size_t>(scores.size())};
}

template class Model<float>;
template class Model<double>;

}  // namespace normscope
