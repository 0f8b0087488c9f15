// Checks that the model of a config is wired as the config says.
//
// Each law holds for any weights: an exact identity of the gradients, an equation written out again in plain
// loops, a comparison with central differences or with another way to compute the same. A fault in the wiring
// breaks at least one of them, as tests/test_check_teeth.py shows by planting faults.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/corpus.h"

namespace normscope {

// The result of a law for a config. `error` is relative unless the law says otherwise.
struct Result {
  std::string law;                               // with the variant of the config, if it is one
  double error;                                  // as measured
  double limit;                                  // fixed: what rounding explains in sound configs
  std::string note;                              // where error/limit is largest; what leaks
  bool holds() const { return error <= limit; }  // NaN does not
};

struct Outcome {
  Outcome(Result one) : results{std::move(one)} {}
  Outcome(std::vector<Result> all) : results(std::move(all)) {}
  Outcome(std::string why) : does_not_apply(std::move(why)) {}
  Outcome(const char* why) : does_not_apply(why) {}

  std::vector<Result> results;
  std::string does_not_apply;  // why, where there are no results
};

struct Context {
  const RunConfig& config;
  const Corpus& corpus;
};

struct Check {
  int number;
  const char* name;
  Outcome (*measure)(const Context& given);
  bool without_eps = false;     // its models have norm_eps 0, whatever the config's
  bool two_characters = false;  // it needs a vocabulary of two: with one, nothing depends on anything
  enum { bits, values, gradients } of = gradients;  // of bits: rounding is no excuse
};

std::span<const Check> checks();  // in the order of the report

// Check::measure(). A check that fails does not apply if its results are NaN (a norm without eps of equal
// numbers, as ReLUs leave them) or the config chaotic.
Outcome run_check(const Check& check, const Context& given);

// identities.cpp:
Outcome norm_gradient(const Context&), branch_scale(const Context&), query_scale(const Context&),
    stream_scale(const Context&);
// precision.cpp:
Outcome uniform_loss(const Context&), precision(const Context&);
// The files of their names:
Outcome causality(const Context&), finite_differences(const Context&), equations(const Context&),
    first_values(const Context&);

}  // namespace normscope
