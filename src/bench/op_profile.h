// The time and the work of each kind of op in a step.
#pragma once

#include <string>
#include <vector>

#include "autograd/tape.h"

namespace normscope {

// Listens to a tape; the calls of one op with the same features make one row.
class OpProfile : public OpListener {
 public:
  struct Row {
    OpCall call;  // rows: of all its calls together
    double forward_seconds = 0, backward_seconds = 0;
    double seconds() const { return forward_seconds + backward_seconds; }
  };

  void on_forward(const OpCall& call, double seconds) override { add({call, seconds, 0}); }
  void on_backward(const OpCall& call, double seconds) override {
    add({{call.name, 0, call.in, call.out}, 0, seconds});
  }
  void add(const Row& more);

  const std::vector<Row>& rows() const { return rows_; }  // in the order of their first call

 private:
  std::vector<Row> rows_;
};

// Forward and backward together: the floating-point operations of a compute-bound op, else 0; the bytes that
// a memory-bound op must read and write, else 0.
double flops_of(const OpCall& call, Index context);
double bytes_of(const OpCall& call);

}  // namespace normscope
