#include "bench/op_profile.h"

#include <algorithm>
#include <string_view>

namespace normscope {

void OpProfile::add(const Row& more) {
  const auto same = [&](const Row& row) {
    return std::string_view(row.call.name) == more.call.name && row.call.in == more.call.in &&
           row.call.out == more.call.out;
  };
  const auto found = std::ranges::find_if(rows_, same);
  if (found == rows_.end()) return rows_.push_back(more);
  found->call.rows += more.call.rows;
  found->forward_seconds += more.forward_seconds;
  found->backward_seconds += more.backward_seconds;
}

double flops_of(const OpCall& call, Index context) {
  const std::string_view name = call.name;
  const double rows = static_cast<double>(call.rows), in = static_cast<double>(call.in);
  // Three products: y, dx and dW.
  if (name.starts_with("linear")) return 6 * rows * in * static_cast<double>(call.out);
  // Six products, S, O, dV, dP, dQ and dK, each of the unmasked half.
  if (name == "attention") return 6 * rows * in * static_cast<double>(context + 1);
  return 0;
}

double bytes_of(const OpCall& call) {
  struct Traffic {
    std::string_view op;
    double tensors;  // of (rows, in) numbers, read and written
  };
  // forward + backward. The optimiser reads gradient, weight and two moments, and writes the last three.
  constexpr Traffic table[] = {{"norm", 2 + 3},      {"qk_norm", 2 + 3},  {"residual", 3},
                               {"scale", 2 + 2},     {"rotary", 2 + 2},   {"learned scale", 2 + 4},
                               {"dropout", 2 + 2},   {"swiglu", 3 + 5},   {"cross-entropy", 1 + 2},
                               {"embedding", 2 + 3}, {"optimiser", 4 + 3}};
  const auto* found = std::ranges::find(table, std::string_view(call.name), &Traffic::op);
  if (found == std::end(table)) return 0;
  return found->tensors * static_cast<double>(sizeof(float)) * static_cast<double>(call.rows * call.in);
}

}  // namespace normscope
