// normscope check CONFIG: verifies the wiring of a config's model, law by law.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "check/check.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/text.h"
#include "model/model.h"
#include "train/estimates.h"

namespace normscope {
namespace {

// 2.1e-16, or a count.
std::string shown(double error) { return text(std::setprecision(2), error); }

Exit run(const CommandLine& line) {
  const RunConfig config = load_config(line.positionals()[0], line.all_of("set")).config;
  set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config, corpus.vocab.size(), 2, 3);  // in float and in double

  std::cout << config.name << "\n\n       error     limit    law\n";
  int held = 0;
  std::vector<std::string> failed;
  for (std::size_t i = 0; i < checks().size(); ++i) {
    const Check& check = checks()[i];
    const Outcome outcome = check.measure({config, corpus});
    const std::string number = aligned_left(std::to_string(i + 1), 3);
    for (const Result& result : outcome.results) {
      std::cout << (result.holds() ? "ok    " : "FAIL  ") << aligned_left(shown(result.error), 10)
                << aligned_left(shown(result.limit), 9) << number << result.law << '\n';
      if (!result.holds()) std::cout << aligned_left("", 28) << result.note << '\n';
    }
    if (!std::ranges::all_of(outcome.results, &Result::holds))
      failed.push_back(text(i + 1, " (", check.name, ")"));
    else if (!outcome.results.empty())
      ++held;
    else
      std::cout << aligned_left("-", 25) << number << check.name << ": does not apply, "
                << outcome.does_not_apply << '\n';
    std::cout.flush();
  }
  std::cout << '\n' << held << " laws hold, " << failed.size() << " fail" << std::endl;
  if (failed.empty()) return Exit::ok;
  fail("check", config.name, ": ", join(failed), failed.size() == 1 ? " fails" : " fail",
       "; the lines marked FAIL say where");
}

}  // namespace

const Command check_command = {
    .name = "check",
    .arguments = "CONFIG",
    .purpose = "verify the wiring of a config's model, law by law",
    .details =
        "The laws hold for any weights, the last one for the first weights. The float engine is compared\n"
        "with double within a rounding limit. A larger error that rounding of the activations alone\n"
        "explains is reported as chaotic. Exit code 1 if a law fails.",
    .options = {set_option, threads_option},
    .run = run};

}  // namespace normscope
