// Proofs that the model of a config is wired as the config says.
//
// Each proof is a law that holds for any weights: an exact identity of the gradients, an equation written out
// once more in plain loops, a comparison with central differences or with another way to compute the same.
// A fault in the wiring breaks at least one of them; tests/test_check_teeth.py plants faults and sees to it.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "config/run_config.h"
#include "data/corpus.h"

namespace normscope {

// One law tried on a config. `error` is relative unless the law says otherwise.
struct Finding {
  std::string law;                               // what must hold, and of which variant of the config
  double error;                                  // what was measured
  double limit;                                  // it may not be above this
  std::string note;                              // where the error is largest; what leaks
  bool holds() const { return error <= limit; }  // NaN does not
};

// What a proof works on, and whom it tells.
struct Subject {
  const RunConfig& config;
  const Corpus& corpus;
  std::function<void(const Finding&)> report;
  std::function<void(const std::string& why)> does_not_apply;
};

struct Proof {
  int number;
  const char* name;
  void (*prove)(const Subject& subject);  // reports at least one finding, or why it does not apply
};

// In the order in which they are tried.
std::span<const Proof> proofs();

// The proofs, by file. identities.cpp:
void prove_norm_gradient(const Subject& subject);
void prove_scale_invariant_branches(const Subject& subject);
void prove_scale_invariant_queries(const Subject& subject);
void prove_scale_invariant_stream(const Subject& subject);
void prove_rezero_start(const Subject& subject);
void prove_equal_characters(const Subject& subject);
// equivalences.cpp:
void prove_placement_equivalences(const Subject& subject);
void prove_uniform_loss(const Subject& subject);
// causality.cpp:
void prove_causality(const Subject& subject);
// finite_differences.cpp:
void prove_finite_differences(const Subject& subject);
// precision.cpp:
void prove_precision(const Subject& subject);
// equations.cpp:
void prove_equations(const Subject& subject);
// first_values.cpp:
void prove_first_values(const Subject& subject);

}  // namespace normscope
