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
  std::string status;  // done, diverged, interrupted; "unfinished" where there is no summary yet
  Index steps = 0, params = 0;
  std::optional<double> final_train_loss, final_val_loss, best_val_loss, grad_first_last, growth,
      tokens_per_s, seconds;
  Index vocab = 0;                     // 0: not known
  std::optional<Index> diverged_step;  // the step whose loss or gradient was not finite
  std::string story;                   // of a diverged run, one line: what broke, what had grown
  std::optional<double> branch_share;  // at the first step; see branch_share() in run_folder.h
  std::optional<double> unigram;       // nats: what counting characters achieves on the validation part
};

// Error if the folder is not a run (usage), or its config or summary cannot be read.
RunRecord read_run(const std::string& folder);

// The run folders that an argument names: the folder itself, or the runs in a sweep's folder, sorted by name.
std::vector<std::string> run_folders(const std::string& argument);

}  // namespace normscope
