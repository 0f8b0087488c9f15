// How long each kind of op takes in a step, and how much work that is.
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

// Of forward and backward together: floating-point operations of an op that arithmetic bounds, else 0; bytes
// of the tensors that an op bound by memory must read and write, else 0.
double flops_of(const OpCall& call, Index context);
double bytes_of(const OpCall& call);

}  // namespace normscope
