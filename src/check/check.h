// Proofs that the model of a config is wired as the config says.
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
struct Finding {
  std::string law;                               // what must hold, and of which variant of the config
  double error;                                  // what was measured
  double limit;                                  // what rounding may do to it
  std::string note;                              // where error is largest beside limit; what leaks
  bool holds() const { return error <= limit; }  // NaN does not
};

struct Outcome {
  Outcome(Finding finding) : findings{std::move(finding)} {}
  Outcome(std::vector<Finding> all) : findings(std::move(all)) {}
  Outcome(std::string why) : does_not_apply(std::move(why)) {}
  Outcome(const char* why) : does_not_apply(why) {}

  std::vector<Finding> findings;
  std::string does_not_apply;  // why, where there are no findings
};

// What a law is tried on.
struct Subject {
  const RunConfig& config;
  const Corpus& corpus;
};

struct Law {
  int number;
  const char* name;
  Outcome (*measure)(const Subject& subject);
  bool without_eps = false;     // it holds at norm_eps 0, whatever the config's
  bool two_characters = false;  // with a vocabulary of one nothing depends on anything
};

// In the order in which they are tried.
std::span<const Law> laws();

// Law::measure(); where its numbers are none (a norm without eps met equal ones, as ReLUs leave) or nothing
// but rounding, it does not apply.
Outcome try_law(const Law& law, const Subject& subject);

// identities.cpp:
Outcome norm_gradient(const Subject&), branch_scale(const Subject&), query_scale(const Subject&),
    stream_scale(const Subject&), rezero_start(const Subject&), equal_characters(const Subject&);
// equivalences.cpp:
Outcome equivalences(const Subject&), uniform_loss(const Subject&);
// The files of their names:
Outcome causality(const Subject&), finite_differences(const Subject&), precision(const Subject&),
    equations(const Subject&), first_values(const Subject&);

}  // namespace normscope
