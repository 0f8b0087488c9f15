// How long each kind of op takes, forward and backward, for `bench`.
#pragma once

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

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
    Row& row = row_of(cost);
    row.seconds_forward += seconds;
    row.flops += cost.flops_forward;
    row.bytes += cost.bytes_forward;
  }
  void add_backward(const OpCost& cost, double seconds) {
    Row& row = row_of(cost);
    row.seconds_backward += seconds;
    row.flops += cost.flops_backward;
    row.bytes += cost.bytes_backward;
  }
  const std::vector<Row>& rows() const { return rows_; }  // in the order of their first call

 private:
  Row& row_of(const OpCost& cost) {
    const auto same = [&](const Row& row) {
      return std::string_view(row.name) == cost.name && row.in == cost.in && row.out == cost.out;
    };
    const auto found = std::find_if(rows_.begin(), rows_.end(), same);
    return found != rows_.end() ? *found : rows_.emplace_back(Row{cost.name, cost.in, cost.out});
  }

  std::vector<Row> rows_;
};

// Seconds since its construction.
class OpClock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace normscope
