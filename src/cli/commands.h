// The commands: one file each.
#pragma once

#include <span>

#include "cli/options.h"

namespace normscope {

extern const Command train_command, probe_command, sweep_command, compare_command, sample_command,
    eval_command, explain_command, check_command, bench_command, config_command, predict_command,
    measure_command, completion_command;

std::span<const Command* const> all_commands();  // in the order of the help

}  // namespace normscope
