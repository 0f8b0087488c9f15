// A sample of every operation and of its variants: small inputs on which its gradient can be measured.
//
// Adding an op means adding its rows here; the gradient tests take them from the table.
#pragma once

#include <span>
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

struct OpSample {
  const char* name;
  std::vector<SampleInput> inputs;
  // The op's output for these inputs, in their order.
  Var<double> (*apply)(Tape<double>& tape, std::span<const Var<double>> inputs);
};

std::span<const OpSample> op_samples();

}  // namespace normscope::testing
