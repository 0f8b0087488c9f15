// The commands: one file each, one row in main's table.
#pragma once

namespace normscope {

// argv[0] is the command's own name. Returns the exit code; Errors are main's to print.
int train_command(int argc, char** argv);
int check_command(int argc, char** argv);
int probe_command(int argc, char** argv);
int compare_command(int argc, char** argv);
int sweep_command(int argc, char** argv);
int sample_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int config_command(int argc, char** argv);

}  // namespace normscope
