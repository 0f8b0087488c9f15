#include "autograd/tape.h"

namespace normscope {

template <class Real>
void Tape<Real>::reset(bool record) {
  arena_.reset();
  gradients_.reset();
  slots_.clear();
  nodes_.clear();
  taps_.clear();
  recording_ = record;
}

template <class Real>
Var<Real> Tape<Real>::create(Index rows, Index cols, bool rounded, bool rounded_gradient) {
  const Index count = rows * cols, words = rows * rounded_cols(cols);
  Var<Real> var{
      .rows = rows, .cols = cols, .slot = new_slot(rounded_gradient ? words : count, rounded_gradient)};
  (rounded ? var.rounded : var.value) = arena_.take<Real>(rounded ? words : count);
  var.rounded_gradient = rounded_gradient;
  return var;
}

template <class Real>
int Tape<Real>::new_slot(Index count, bool rounded) {
  if (!recording_) return -1;
  slots_.push_back({count, rounded});
  return static_cast<int>(slots_.size()) - 1;
}

template <class Real>
Var<Real> Tape<Real>::parameter(Real* value, Real* gradient, Index rows, Index cols) {
  Var<Real> var{value, rows, cols, -1};
  if (recording_ && gradient != nullptr) {
    var.slot = static_cast<int>(slots_.size());
    slots_.push_back({var.size(), false, new (arena_.take<Buffer>(1)) Buffer{gradient, var.size(), 1, true}});
  }
  return var;
}

template <class Real>
std::size_t Tape<Real>::checked(const Var<Real>& var) const {
  require(var.slot >= 0 && static_cast<std::size_t>(var.slot) < slots_.size(), "tape",
          "a gradient was asked of a value that has none");
  return static_cast<std::size_t>(var.slot);
}

template <class Real>
typename Tape<Real>::Buffer* Tape<Real>::new_buffer(Index count) {
  return new (arena_.take<Buffer>(1)) Buffer{gradients_.acquire(count), count, 1, false};
}

template <class Real>
Accumulator<Real> Tape<Real>::accumulate(const Var<Real>& input) {
  Slot& slot = slots_[checked(input)];
  if (slot.buffer == nullptr) {
    slot.buffer = new_buffer(slot.count);
    return {slot.buffer->data, Real(0)};
  }
  require(!slot.rounded, "tape", "a second contribution to a gradient in bf16, which takes one");
  if (slot.buffer->owners > 1) {  // shared by share_gradient(): take a copy before changing it
    Buffer* copy = new_buffer(slot.count);
    std::memcpy(copy->data, slot.buffer->data, static_cast<std::size_t>(slot.count) * sizeof(Real));
    --slot.buffer->owners;
    slot.buffer = copy;
  }
  return {slot.buffer->data, Real(1)};
}

template <class Real>
Real* Tape<Real>::add_to(const Var<Real>& input) {
  require(!input.rounded_gradient, "tape", "an op that only adds cannot write a gradient in bf16");
  const Accumulator<Real> sum = accumulate(input);
  if (sum.beta == 0) std::memset(sum.data, 0, static_cast<std::size_t>(input.size()) * sizeof(Real));
  return sum.data;
}

template <class Real>
void Tape<Real>::share_gradient(const Var<Real>& output, const Var<Real>& input) {
  Slot& to = slots_[checked(input)];
  require(to.rounded == slots_[checked(output)].rounded, "tape",
          "a gradient in bf16 passed on to one that is not");
  Buffer* from = slots_[checked(output)].buffer;
  if (to.buffer == nullptr && !from->persistent) {
    to.buffer = from;
    ++from->owners;
    return;
  }
  const Accumulator<Real> sum = accumulate(input);
  for (Index i = 0; i < to.count; ++i) sum.data[i] = (sum.beta == 0 ? Real(0) : sum.data[i]) + from->data[i];
}

template <class Real>
void Tape<Real>::tap(const Var<Real>& value, Place place) {
  if (listener_ == nullptr) return;
  listener_->on_value(place, {value.stored(), value.rows, value.cols, value.rounded != nullptr});
  if (value.slot >= 0) {
    taps_.push_back({value.slot, place, value.rows, value.cols, value.rounded_gradient});
  }
}

template <class Real>
void Tape<Real>::set_noise(Real size, std::uint64_t seed) {
  noise_ = size;
  noise_stream_ = RandomStream(seed, "noise");
  noise_draws_ = 0;
}

template <class Real>
void Tape<Real>::add_noise(Index n, Real* x) {
  for (Index i = 0; i < n && noisy(); ++i) {
    x[i] *= 1 + noise_ * static_cast<Real>(2 * noise_stream_.uniform(noise_draws_++) - 1);
  }
}

template <class Real>
void Tape<Real>::drop(Slot& slot) {
  Buffer* buffer = slot.buffer;
  slot.buffer = nullptr;
  if (buffer == nullptr || buffer->persistent) return;
  if (--buffer->owners == 0) gradients_.release(buffer->data, buffer->count);
}

template <class Real>
void Tape<Real>::backward(const Var<Real>& loss, Real cotangent) {
  require(loss.size() == 1, "tape", "backward starts at a scalar; got (", loss.rows, ", ", loss.cols, ")");
  backward_from(loss, &cotangent);
}

template <class Real>
void Tape<Real>::backward_from(const Var<Real>& output, const Real* cotangent) {
  require(recording_, "tape", "backward on a tape that does not record");
  require(!output.rounded_gradient, "tape", "backward from a value whose gradient is in bf16");
  const Accumulator<Real> start = accumulate(output);
  std::memcpy(start.data, cotangent, static_cast<std::size_t>(output.size()) * sizeof(Real));
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    Slot& slot = slots_[static_cast<std::size_t>(node->output)];
    if (slot.buffer == nullptr) continue;  // nothing that matters read this value
    add_noise(slot.count, slot.buffer->data);
    // Every reader of this value came later on the tape, so its gradient is final now.
    if (listener_ != nullptr) {
      for (const Tap& tap : taps_) {
        if (tap.slot != node->output) continue;
        listener_->on_gradient(tap.place, {slot.buffer->data, tap.rows, tap.cols, tap.rounded});
      }
    }
    const Stopwatch clock;
    node->backward(node->closure, *this);
    if (profile_ != nullptr && node->cost != nullptr) profile_->add_backward(*node->cost, clock.seconds());
    drop(slots_[static_cast<std::size_t>(node->output)]);
  }
}

template class Tape<float>;
template class Tape<double>;

}  // namespace normscope
