// How long each kind of op takes, forward and backward, for `bench`.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/stopwatch.h"
#include "core/types.h"

namespace normscope {

// One call of an op: what it is, and the work of its two passes. Bytes are those of the tensors that it must
// read and write; where arithmetic bounds it they may stay 0.
struct OpCost {
  const char* name;
  Index in = 0, out = 0;  // of a linear layer: its features; they tell layers apart
  double flops_forward = 0, flops_backward = 0;
  double bytes_forward = 0, bytes_backward = 0;
};

class OpProfile {
 public:
  struct Row {
    const char* name;
    Index in, out;
    double seconds_forward = 0, seconds_backward = 0, flops = 0, bytes = 0;
    double seconds() const { return seconds_forward + seconds_backward; }
  };

  void add_forward(const OpCost& cost, double seconds) {
    add({cost.name, cost.in, cost.out, seconds, 0, cost.flops_forward, cost.bytes_forward});
  }
  void add_backward(const OpCost& cost, double seconds) {
    add({cost.name, cost.in, cost.out, 0, seconds, cost.flops_backward, cost.bytes_backward});
  }
  void add(const Row& more) {
    const auto same = [&](const Row& row) {
      return std::string_view(row.name) == more.name && row.in == more.in && row.out == more.out;
    };
    const auto found = std::find_if(rows_.begin(), rows_.end(), same);
    if (found == rows_.end()) return rows_.push_back(more);
    found->seconds_forward += more.seconds_forward;
    found->seconds_backward += more.seconds_backward;
    found->flops += more.flops;
    found->bytes += more.bytes;
  }
  const std::vector<Row>& rows() const { return rows_; }  // in the order of their first call

 private:
  std::vector<Row> rows_;
};

}  // namespace normscope
