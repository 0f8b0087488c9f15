// A sample of every operation and of its variants: small inputs on which its gradient can be measured.
//
// Adding an op means adding its rows here; the gradient tests take them from the table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace normscope::testing {

// An input of a sample: a (rows, cols) matrix of mean + spread * standard normals.
struct SampleInput {
  const char* name;
  Index rows, cols;
  double mean = 0;
  double spread = 1;
};

using Inputs = std::span<const Var<double>>;

struct OpSample {
  std::string name;
  std::vector<SampleInput> inputs;
  // The op's output for these inputs, in their order.
  std::function<Var<double>(Tape<double>&, Inputs)> apply;
};

std::span<const OpSample> op_samples();

}  // namespace normscope::testing
