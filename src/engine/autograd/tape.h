// The tape: records each operation as it runs and walks the record backwards.
//
// Creation order is a topological order, so its reverse is a valid order for gradients. An op computes its
// value at once and records a closure that adds its contribution to its inputs' gradients. Values, their
// gradients and closures live in the step's arena, gradients of parameters in the caller's buffer (Model's).
// Gradients in the arena are reused within a step as soon as they have been passed on; after the first steps
// nothing is allocated from the system.
#pragma once

#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "core/arena.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/sites.h"
#include "core/types.h"

namespace normscope {

// A dense matrix on the tape: activations have N = B*T rows, vectors one.
template <class Real>
struct Var : Matrix<Real> {
  int slot = -1;  // index of its gradient; -1: it needs none
};

// The destination of an op's gradient contribution: the op must compute data = beta*data + contribution and
// must not read `data` when beta is 0. Gradients only ever accumulate: beta is 0 for the first contribution
// to a buffer of the tape, and 1 for every later one and for parameters, whose buffer the caller clears.
template <class Real>
struct Accumulator {
  Real* data;  // dense, of the input's shape
  Real beta;
};

// An observer of values and final gradients at the model's sites, branches and attention heads. on_value()
// may modify the value; the forward pass continues with the modified one.
template <class Real>
class TapListener {
 public:
  virtual ~TapListener() = default;
  virtual void on_value(SiteId id, const Matrix<Real>& value) = 0;
  virtual void on_gradient(SiteId id, const Matrix<Real>& gradient) = 0;

  // The result of each op of a pass that records, and its gradient when that is final. A listener may modify both,
  // as an op's backward may not; a modified gradient changes for each value that shares its buffer
  // (alias_gradient()).
  virtual void on_result(const Matrix<Real>& /*value*/) {}
  virtual void on_result_gradient(const Matrix<Real>& /*gradient*/) {}
  // A sublayer's branch: the tensor that is added to alpha times the stream before the sublayer. `output` is
  // the site of the sublayer's own output, attn_out or ffn_out.
  virtual void on_branch(SiteId /*output*/, Real /*alpha*/, const Matrix<Real>& /*branch*/) {}
  // The softmax statistics of a layer's (B, H) heads.
  virtual void on_heads(int /*layer*/, std::span<const HeadStats>) {}
};

// One call of an op: rows of its activations, features of its input and output.
struct OpCall {
  const char* name;
  Index rows, in, out;
};

// An observer of the time that each call of an op and its backward took.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void on_forward(const OpCall& call, double seconds) = 0;
  virtual void on_backward(const OpCall& call, double seconds) = 0;
};

template <class Real>
class Tape {
 public:
  Tape() : gradients_(arena_) {}

  // Begin a new step: drop all values and closures. If `record` is false, the step has no backward; its
  // values stay until the next reset, as those of others do.
  void reset(bool record = true);

  // --- for ops, forward ------------------------------------------------------------------------------------

  // A new, uninitialised value, with a gradient if the tape records.
  Var<Real> create(Index rows, Index cols);

  // Uninitialised memory that lives until reset(), for numbers that a backward needs besides values.
  template <class T>
  T* save(Index count) {
    return arena_.take<T>(count);
  }

  bool recording() const { return recording_; }

  // Record an op's backward: the tape calls backward(tape) when the gradient of `output` is final. The
  // closure is copied bytewise into the arena, so it may hold only plain values: pointers, sizes, Vars.
  template <class Backward>
  void record(const Var<Real>& output, Backward backward) {
    static_assert(std::is_trivially_copyable_v<Backward> && std::is_trivially_destructible_v<Backward>);
    if (!recording_) return;
    if (listener_ != nullptr) listener_->on_result(output);
    void* closure = new (arena_.take<Backward>(1)) Backward(backward);
    nodes_.push_back({output.slot, closure,
                      [](const void* c, Tape& tape) { (*static_cast<const Backward*>(c))(tape); }, call_});
  }

  // A guard that times an op and reports it to the OpListener; construct it first in the op. out = 0 means
  // out = in.
  class Op {
   public:
    Op(Tape& tape, const char* name, Index rows, Index in, Index out = 0) : tape_(tape) {
      tape.call_ = {name, rows, in, out == 0 ? in : out};
    }
    ~Op() {
      if (tape_.op_listener_ != nullptr) tape_.op_listener_->on_forward(tape_.call_, clock_.seconds());
    }
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;

   private:
    Tape& tape_;
    Stopwatch clock_;
  };

  // --- for ops, backward -----------------------------------------------------------------------------------

  // The final gradient of an op's own output. Read only: other values may share its buffer (alias_gradient()).
  Matrix<Real> gradient(const Var<Real>& output) const;

  bool wants_gradient(const Var<Real>& input) const { return input.slot >= 0; }

  // The destination of a contribution to the gradient of `input`. Error: `input` has no gradient. An op whose
  // input may be a constant calls wants_gradient() first, as linear() does.
  Accumulator<Real> accumulate(const Var<Real>& input);

  // The destination for kernels that can only add: a buffer of the tape holds zeros before the first
  // contribution. Null if `input` is absent or needs no gradient.
  Real* add_to(const Var<Real>& input);

  // input.grad += output.grad, of the same shape. If input has no gradient yet, it shares output's buffer;
  // accumulate() copies a shared buffer before it is added to.
  void alias_gradient(const Var<Real>& output, const Var<Real>& input);

  // --- for the model ---------------------------------------------------------------------------------------

  // A parameter. The caller owns value and gradient; the tape adds to the gradient and never clears it.
  Var<Real> parameter(Real* value, Real* gradient, Index rows, Index cols);

  // A copy of a value, never differentiated.
  Var<Real> constant(const Real* value, Index rows, Index cols);

  // Report a value to the listener now, and its gradient when that is final.
  void tap(const Var<Real>& value, SiteId id);

  // Report branches and attention heads to the listener; without one, do nothing.
  void tap_branch(SiteId output, Real alpha, const Var<Real>& branch) {
    if (listener_ != nullptr) listener_->on_branch(output, alpha, branch);
  }
  std::span<HeadStats> room_for_heads(Index count) {
    return listener_ == nullptr ? std::span<HeadStats>() : std::span(save<HeadStats>(count), count);
  }
  void tap_heads(int layer, std::span<const HeadStats> heads) {
    if (listener_ != nullptr) listener_->on_heads(layer, heads);
  }

  // --- for the trainer -------------------------------------------------------------------------------------

  void set_listener(TapListener<Real>* listener) { listener_ = listener; }
  void set_op_listener(OpListener* listener) { op_listener_ = listener; }

  // Backpropagate from a scalar, d(loss)/d(loss) = cotangent. A tape is walked only once, since an op's
  // backward may overwrite what it saved, as that of linear() does with an activation's slopes.
  void backward(const Var<Real>& loss, Real cotangent = 1);

  // Backpropagate from any value with the given cotangent (rows*cols numbers).
  void backward_from(const Var<Real>& output, const Real* cotangent);

  const Arena& arena() const { return arena_; }

 private:
  struct Buffer {
    Real* data;
    int owners;       // number of slots that share it
    bool persistent;  // a parameter's gradient: never shared, never released
  };
  struct Slot {
    Index rows, cols;
    Buffer* buffer = nullptr;  // null until the first contribution

    Matrix<Real> gradient() const { return {buffer->data, rows, cols}; }
  };
  struct Node {
    int output;
    const void* closure;
    void (*backward)(const void*, Tape&);
    OpCall call;
  };
  struct Tap {
    int slot;
    SiteId id;
  };

  int new_slot(Index rows, Index cols);
  std::size_t slot_of(const Var<Real>& var) const;  // Error: the variable has none
  Buffer* new_buffer(const Slot& slot);
  void drop(Slot& slot);

  Arena arena_;
  BufferPool<Real> gradients_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  std::vector<Tap> taps_;  // by slot
  TapListener<Real>* listener_ = nullptr;
  OpListener* op_listener_ = nullptr;
  OpCall call_{};  // the op being recorded
  bool recording_ = true, walked_ = false;
};

extern template class Tape<float>;
extern template class Tape<double>;

}  // namespace normscope
