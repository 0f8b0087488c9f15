#include "autograd/tape.h"

#include <algorithm>
#include <cstring>
#include <utility>

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
Matrix<Real> Tape<Real>::matrix(Index rows, Index cols, DType dtype) {
  const std::size_t bytes = matrix_bytes<Real>(rows, cols, dtype);
  return matrix_at<Real>(save<std::byte>(static_cast<Index>(bytes)), rows, cols, dtype);
}

template <class Real>
Var<Real> Tape<Real>::create(Index rows, Index cols, DType dtype, DType gradient_dtype) {
  return {matrix(rows, cols, dtype), new_slot(rows, cols, gradient_dtype), gradient_dtype};
}

template <class Real>
int Tape<Real>::new_slot(Index rows, Index cols, DType dtype) {
  if (!recording_) return -1;
  slots_.push_back({rows, cols, dtype});
  return static_cast<int>(slots_.size()) - 1;
}

template <class Real>
Var<Real> Tape<Real>::parameter(Real* value, Real* gradient, Index rows, Index cols) {
  Var<Real> var = constant(value, rows, cols);
  if (!recording_ || gradient == nullptr) return var;
  var.slot = new_slot(rows, cols, DType::real);
  slots_.back().buffer = new (arena_.take<Buffer>(1))
      Buffer{reinterpret_cast<std::byte*>(gradient), matrix_bytes<Real>(rows, cols, DType::real), 1, true};
  return var;
}

template <class Real>
const typename Tape<Real>::Slot& Tape<Real>::slot_of(const Var<Real>& var) const {
  require(var.slot >= 0 && static_cast<std::size_t>(var.slot) < slots_.size(), "tape",
          "the gradient of a value that has none");
  return slots_[var.slot];
}
template <class Real>
typename Tape<Real>::Slot& Tape<Real>::slot_of(const Var<Real>& var) {
  return const_cast<Slot&>(std::as_const(*this).slot_of(var));
}

template <class Real>
Matrix<Real> Tape<Real>::gradient_matrix(const Var<Real>& output) const {
  return slot_of(output).matrix();
}

template <class Real>
const Real* Tape<Real>::gradient(const Var<Real>& output) const {
  const Slot& slot = slot_of(output);
  require(slot.dtype == DType::real, "tape", "a bf16 gradient read as reals");
  return slot.matrix().value;
}

template <class Real>
typename Tape<Real>::Buffer* Tape<Real>::new_buffer(const Slot& slot) {
  const std::size_t bytes = matrix_bytes<Real>(slot.rows, slot.cols, slot.dtype);
  return new (arena_.take<Buffer>(1)) Buffer{gradients_.acquire(bytes), bytes, 1, false};
}

template <class Real>
MatrixAccumulator<Real> Tape<Real>::accumulate_matrix(const Var<Real>& input) {
  Slot& slot = slot_of(input);
  if (slot.buffer == nullptr) {
    slot.buffer = new_buffer(slot);
    return {slot.matrix(), Real(0)};
  }
  require(slot.dtype == DType::real, "tape", "a second contribution to a gradient in bf16, which takes one");
  if (slot.buffer->owners > 1) {  // shared by share_gradient(): take a copy before changing it
    Buffer* copy = new_buffer(slot);
    std::memcpy(copy->data, slot.buffer->data, copy->bytes);
    --slot.buffer->owners;
    slot.buffer = copy;
  }
  return {slot.matrix(), Real(1)};
}

template <class Real>
Accumulator<Real> Tape<Real>::accumulate(const Var<Real>& input) {
  require(slot_of(input).dtype == DType::real, "tape",
          "an op that writes no bf16 cannot write this gradient");
  const MatrixAccumulator<Real> sum = accumulate_matrix(input);
  return {sum.matrix.value, sum.beta};
}

template <class Real>
Real* Tape<Real>::add_to(const Var<Real>& input) {
  const Accumulator<Real> sum = accumulate(input);
  if (sum.beta == 0) std::fill_n(sum.data, input.size(), Real(0));
  return sum.data;
}

template <class Real>
void Tape<Real>::share_gradient(const Var<Real>& output, const Var<Real>& input) {
  Slot &from = slot_of(output), &to = slot_of(input);
  require(to.dtype == from.dtype, "tape", "a bf16 gradient shared with one that is not bf16");
  if (to.buffer == nullptr && !from.buffer->persistent) {
    to.buffer = from.buffer;
    ++from.buffer->owners;
    return;
  }
  const Real* share = gradient(output);
  const Accumulator<Real> sum = accumulate(input);
  for (Index i = 0; i < input.size(); ++i) sum.data[i] = (sum.beta == 0 ? Real(0) : sum.data[i]) + share[i];
}

template <class Real>
void Tape<Real>::tap(const Var<Real>& value, Place place) {
  if (listener_ == nullptr) return;
  listener_->on_value(place, value);
  if (value.slot >= 0) taps_.push_back({value.slot, place});
}

template <class Real>
void Tape<Real>::drop(Slot& slot) {
  Buffer* buffer = slot.buffer;
  slot.buffer = nullptr;
  if (buffer == nullptr || buffer->persistent) return;
  if (--buffer->owners == 0) gradients_.release(buffer->data, buffer->bytes);
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
    const Matrix<Real> gradient = slot.matrix();
    // Every reader of this value came later on the tape, so its gradient is final now.
    for (const Tap& tap : taps_) {
      if (listener_ != nullptr && tap.slot == node->output) listener_->on_gradient(tap.place, gradient);
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
