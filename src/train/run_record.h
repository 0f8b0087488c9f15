// A run folder as its files tell it: what comparisons, tables and sweeps need to know of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

struct RunRecord {
  std::string folder;
  RunConfig config;
  // done, diverged, interrupted, probe; "unfinished" where no summary tells of the last rows: the run goes
  // on, or was killed. Its figures are then those of its logs so far.
  std::string status;
  Index steps = 0, params = 0, vocab = 0;  // 0: not known
  std::optional<double> final_train_loss, final_val_loss, best_val_loss, grad_first_last, growth,
      tokens_per_s, seconds;
  std::optional<double> unigram;       // nats: what counting characters achieves on the validation split
  std::optional<Index> diverged_step;  // the step whose loss or gradient was not finite
  std::string story;                   // of a diverged run, one line: what broke, what had grown
  std::optional<double> branch_share;  // at the first logged step; see branch_share() in run_folder.h
};

// Errors: the folder is no run (usage), its config or summary is damaged.
RunRecord read_run(const std::string& folder);

// The run folders that an argument names: the folder itself, or the runs in it, in the order of its
// summary.csv, which is the sweep's; others follow by name, L=2 before L=12.
std::vector<std::string> run_folders(const std::string& argument);

}  // namespace normscope
