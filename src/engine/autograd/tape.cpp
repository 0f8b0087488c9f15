#include "autograd/tape.h"

#include <algorithm>

namespace normscope {

template <class Real>
void Tape<Real>::reset(bool record) {
  arena_.reset();
  gradients_.reset();
  slots_.clear();
  nodes_.clear();
  taps_.clear();
  recording_ = record;
  walked_ = false;
}

template <class Real>
Var<Real> Tape<Real>::create(Index rows, Index cols) {
  return {{save<Real>(rows * cols), rows, cols}, new_slot(rows, cols)};
}

template <class Real>
int Tape<Real>::new_slot(Index rows, Index cols) {
  if (!recording_) return -1;
  slots_.push_back({rows, cols});
  return static_cast<int>(slots_.size()) - 1;
}

template <class Real>
Var<Real> Tape<Real>::parameter(Real* value, Real* gradient, Index rows, Index cols) {
  Var<Real> var{{value, rows, cols}};
  if (!recording_ || gradient == nullptr) return var;
  var.slot = new_slot(rows, cols);
  slots_.back().buffer = new (arena_.take<Buffer>(1)) Buffer{gradient, 1, true};
  return var;
}

template <class Real>
Var<Real> Tape<Real>::constant(const Real* value, Index rows, Index cols) {
  const Var<Real> copy{{save<Real>(rows * cols), rows, cols}};
  std::copy_n(value, copy.size(), copy.data);
  return copy;
}

template <class Real>
std::size_t Tape<Real>::slot_of(const Var<Real>& var) const {
  const auto slot = static_cast<std::size_t>(var.slot);  // -1 becomes larger than any slot
  require(slot < slots_.size(), "tape", "the gradient of a value that has none");
  return slot;
}

template <class Real>
Matrix<Real> Tape<Real>::gradient(const Var<Real>& output) const {
  return slots_[slot_of(output)].gradient();
}

template <class Real>
typename Tape<Real>::Buffer* Tape<Real>::new_buffer(const Slot& slot) {
  return new (arena_.take<Buffer>(1)) Buffer{gradients_.acquire(slot.rows * slot.cols), 1, false};
}

template <class Real>
Accumulator<Real> Tape<Real>::accumulate(const Var<Real>& input) {
  Slot& slot = slots_[slot_of(input)];
  if (slot.buffer == nullptr) {
    slot.buffer = new_buffer(slot);
    return {slot.buffer->data, Real(0)};
  }
  if (slot.buffer->owners > 1) {  // alias_gradient() shared this buffer: copy it before changing it
    Buffer* copy = new_buffer(slot);
    std::copy_n(slot.buffer->data, slot.rows * slot.cols, copy->data);
    --slot.buffer->owners;
    slot.buffer = copy;
  }
  return {slot.buffer->data, Real(1)};
}

template <class Real>
Real* Tape<Real>::add_to(const Var<Real>& input) {
  if (!wants_gradient(input)) return nullptr;
  const Accumulator<Real> sum = accumulate(input);
  if (sum.beta == 0) std::fill_n(sum.data, input.size(), Real(0));
  return sum.data;
}

template <class Real>
void Tape<Real>::alias_gradient(const Var<Real>& output, const Var<Real>& input) {
  Slot &from = slots_[slot_of(output)], &to = slots_[slot_of(input)];
  if (to.buffer == nullptr && !from.buffer->persistent) {
    to.buffer = from.buffer;
    ++from.buffer->owners;
    return;
  }
  const Real* added = from.buffer->data;
  const Accumulator<Real> sum = accumulate(input);
  for (Index i = 0; i < input.size(); ++i) sum.data[i] = (sum.beta == 0 ? Real(0) : sum.data[i]) + added[i];
}

template <class Real>
void Tape<Real>::tap(const Var<Real>& value, SiteId id) {
  if (listener_ == nullptr) return;
  listener_->on_value(id, value);
  if (value.slot < 0) return;
  const auto after =
      std::ranges::upper_bound(taps_, value.slot, {}, &Tap::slot);  // nearly always the last one
  taps_.insert(after, {value.slot, id});
}

template <class Real>
void Tape<Real>::drop(Slot& slot) {
  Buffer* buffer = slot.buffer;
  slot.buffer = nullptr;
  if (buffer == nullptr || buffer->persistent) return;
  if (--buffer->owners == 0) gradients_.release(buffer->data, slot.rows * slot.cols);
}

template <class Real>
void Tape<Real>::backward(const Var<Real>& loss, Real cotangent) {
  require(loss.size() == 1, "tape", "backward starts at a scalar; got (", loss.rows, ", ", loss.cols, ")");
  backward_from(loss, &cotangent);
}

template <class Real>
void Tape<Real>::backward_from(const Var<Real>& output, const Real* cotangent) {
  require(recording_, "tape", "backward on a tape that does not record");
  require(!walked_, "tape", "a second backward over one tape, whose ops have overwritten what they saved");
  walked_ = true;
  const Accumulator<Real> start = accumulate(output);
  std::copy_n(cotangent, output.size(), start.data);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const Slot& slot = slots_[node->output];
    if (slot.buffer == nullptr) continue;  // the loss does not depend on it
    const Matrix<Real> gradient = slot.gradient();
    // Every reader of this value came later on the tape, so its gradient is final now.
    if (listener_ != nullptr) listener_->on_result_gradient(gradient);
    for (const Tap& tap : std::ranges::equal_range(taps_, node->output, {}, &Tap::slot)) {
      if (listener_ != nullptr) listener_->on_gradient(tap.id, gradient);
    }
    const Stopwatch clock;
    node->backward(node->closure, *this);
    if (op_listener_ != nullptr) op_listener_->on_backward(node->call, clock.seconds());
    drop(slots_[node->output]);
  }
}

template class Tape<float>;
template class Tape<double>;

}  // namespace normscope
