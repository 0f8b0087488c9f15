// Checks that the model of a config is wired as the config says.
//
// Each law holds for any weights: an exact identity of the gradients, an equation written out once more in
// plain loops, a comparison with central differences or with another way to compute the same. A fault in the
// wiring breaks at least one of them; tests/test_check_teeth.py plants faults and sees to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/corpus.h"

namespace normscope {

// One law tried on a config. `error` is relative unless the law says otherwise.
struct Result {
  std::string law;                               // what must hold, and of which variant of the config
  double error;                                  // what was measured
  double limit;                                  // what rounding may do to it
  std::string note;                              // where error is largest beside limit; what leaks
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

// What a law is tried on.
struct Context {
  const RunConfig& config;
  const Corpus& corpus;
};

struct Check {
  int number;
  const char* name;
  Outcome (*measure)(const Context& given);
  bool without_eps = false;     // it holds at norm_eps 0, whatever the config's
  bool two_characters = false;  // with a vocabulary of one nothing depends on anything
};

// In the order in which they are tried.
std::span<const Check> checks();

// Check::measure(); where its numbers are none (a norm without eps met equal ones, as ReLUs leave) or nothing
// but rounding, it does not apply.
Outcome run_check(const Check& check, const Context& given);

// identities.cpp:
Outcome norm_gradient(const Context&), branch_scale(const Context&), query_scale(const Context&),
    stream_scale(const Context&), rezero_start(const Context&), equal_characters(const Context&);
// equivalences.cpp:
Outcome equivalences(const Context&), uniform_loss(const Context&);
// The files of their names:
Outcome causality(const Context&), finite_differences(const Context&), precision(const Context&),
    equations(const Context&), first_values(const Context&);

}  // namespace normscope
