// normscope check CONFIG: verifies the wiring of a config's model, law by law.
#include "check/check.h"

#include <cmath>
#include <iomanip>
#include <iostream>

#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/parallel.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/cost.h"

namespace normscope {
namespace {

// 2.1e-16, or a count.
std::string shown_error(double error) {
  return error == std::floor(error) ? text(error) : text(std::scientific, std::setprecision(1), error);
}

std::string summary_of(const ModelConfig& m) {
  std::string placements;
  for (const BlockPlacement& block : m.norm_placement)
    placements += (placements.empty() ? "" : "+") + placement_name(block);
  return text(placements, ", ", name_of(m.norm), ", L ", m.n_layer, ", C ", m.d_model, ", H ", m.n_head,
              ", F ", m.d_ff, ", T ", m.context, ", ", name_of(m.activation));
}

// The outcomes of all checks of a small model, whose loops are too short for several threads: each thread
// takes whole checks. For a large model, no outcomes: its checks run one after another.
std::vector<std::optional<Outcome>> outcomes_if_small(const Context& given) {
  constexpr Index max_params = 1'000'000;
  std::vector<std::optional<Outcome>> outcomes(checks().size());
  if (ParameterLayout(given.config.model, given.corpus.vocab.size()).count() > max_params) return outcomes;
  parallel_for(std::ssize(outcomes), [&](Index i) { outcomes[i] = run_check(checks()[i], given); });
  return outcomes;
}

Exit run(const CommandLine& line) {
  const RunConfig config = load_config(line.positionals()[0], line.all_of("set")).config;
  set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config.model, corpus.vocab.size(), 2, 3);  // in float and in double

  std::cout << escape_controls(config.name) << ": " << summary_of(config.model) << "\n\n"
            << "       error     limit    law\n";
  ProgressDisplay progress;
  int held = 0, skipped = 0;
  std::vector<std::string> failed;
  const std::vector<std::optional<Outcome>> known = outcomes_if_small({config, corpus});
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Check& check = checks()[i];
    if (!known[i] && can_rewrite_lines())
      progress.show({text(check.number, "/", checks().size(), " ", check.name, " ...")});
    const Outcome outcome = known[i] ? *known[i] : run_check(check, {config, corpus});
    progress.clear();
    const std::string number = aligned_left(std::to_string(check.number), 3);
    for (const Result& result : outcome.results) {
      std::cout << (result.holds() ? "ok    " : "FAIL  ") << aligned_left(shown_error(result.error), 10)
                << aligned_left(shown_error(result.limit), 9) << number << result.law << '\n';
      held += result.holds();
      if (result.holds()) continue;
      if (!result.note.empty()) std::cout << aligned_left("", 28) << result.note << '\n';
      failed.push_back(text(check.number, " (", check.name, ")"));
    }
    if (outcome.results.empty()) {
      std::cout << aligned_left("-", 25) << number << check.name << ": does not apply, "
                << outcome.does_not_apply << '\n';
      ++skipped;
    }
    std::cout.flush();
  }
  std::cout << '\n' << held << " laws hold";
  if (skipped > 0) std::cout << ", " << skipped << " do not apply";
  std::cout << (failed.empty() ? "\n"
                               : text(", ", failed.size(), failed.size() == 1 ? " fails\n" : " fail\n"));
  if (failed.empty()) return Exit::ok;
  std::cout.flush();
  fail("check", escape_controls(config.name), ": ", join(failed), failed.size() == 1 ? " fails" : " fail",
       "; the lines marked FAIL say where");
}

}  // namespace

const Command check_command = {
    .name = "check",
    .arguments = "CONFIG",
    .purpose = "verifies the wiring of a config's model, law by law",
    .details =
        "The laws hold for any weights: drawn anew, every 1-D tensor moved off its start, in double; and "
        "the\n"
        "engine that trains equals double with the config's own. Limits are fixed; a config whose weights,\n"
        "moved by rounding alone, move a tensor further is named as chaotic. Exit code 1 if a law fails.",
    .options = {set_option, threads_option},
    .run = run};

}  // namespace normscope
