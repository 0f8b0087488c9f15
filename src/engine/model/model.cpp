#include "model/model.h"

#include "core/error.h"
#include "ops/cross_entropy.h"

namespace normscope {

template <class Real>
double Model<Real>::loss_and_gradients(Pass pass, Real cotangent, TapListener<Real>* listener,
                                       std::vector<Real>* logits) {
  tape.reset();
  tape.set_listener(listener);
  pass.branch_progress = branch_progress;
  const Var<Real> scores = transformer.logits(tape, parameters, &gradients, running, pass);
  double mean = 0;
  const Var<Real> loss = cross_entropy(tape, scores, pass.targets, &mean);
  if (logits != nullptr) logits->assign(scores.data, scores.data + scores.size());
  tape.backward(loss, cotangent);
  tape.set_listener(nullptr);
  return mean;
}

template <class Real>
double Model<Real>::loss(Pass pass, TapListener<Real>* listener) {
  tape.reset(false);
  tape.set_listener(listener);
  pass.eval_mode = true;
  pass.branch_progress = branch_progress;
  const Var<Real> scores = transformer.logits(tape, parameters, nullptr, running, pass);
  tape.set_listener(nullptr);
  double mean = 0;
  cross_entropy(tape, scores, pass.targets, &mean);
  return mean;
}

template <class Real>
std::span<const Real> Model<Real>::forward(std::span<const std::int32_t> tokens, KeyValueCache<Real>* cache) {
  require(cache == nullptr || cache->length + std::ssize(tokens) <= config().context, "model",
          "the key-value cache has no room for ", tokens.size(), " more tokens");
  tape.reset(false);
  const Pass pass{.tokens = tokens,
                  .targets = {},
                  .context = std::ssize(tokens),
                  .eval_mode = true,
                  .branch_progress = branch_progress};
  const Var<Real> scores = transformer.logits(tape, parameters, nullptr, running, pass, cache);
  return std::span<const Real>(scores.data, scores.size());
}

template class Model<float>;
template class Model<double>;

}  // namespace normscope
