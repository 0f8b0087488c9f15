// normscope bench [CONFIG]: how fast training steps are, as a share of what this machine's cores can do.
#include <iostream>

#include "bench/machine.h"
#include "bench/steps.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/parallel.h"
#include "io/json.h"
#include "logs/record.h"

namespace normscope {
namespace {

constexpr Index min_steps = 20;
constexpr double noticeable_share = 0.05;  // of other programs in the CPU time

// nanoGPT's CPU preset.
RunConfig default_config() {
  RunConfig config;
  config.name = "bench";
  config.model.n_layer = config.model.n_head = 4;
  config.model.d_model = 128;
  config.model.d_ff = 512;
  config.model.context = 64;
  config.train.batch_size = 12;
  return config;
}

RunConfig config_of(const CommandLine& line) {
  if (line.positionals().empty() && line.has("set")) refuse("bench", "--set needs a CONFIG to change");
  if (line.positionals().empty()) return default_config();
  RunConfig config = load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config;
  if (config.train.batch_size == 0) config.train.batch_size = default_config().train.batch_size;
  return config;
}

Json to_json(const Measurement& m) {
  Json ops = Json::array();
  for (const OpTime& op : m.ops) {
    Json& row = ops.emplace_back();
    row = {{"op", op.name},
           {"ms", op.ms},
           {"forward_ms", op.forward_ms},
           {"backward_ms", op.backward_ms},
           {"share", op.share}};
    if (op.gflops) row["gflops"] = *op.gflops;
    if (op.gb_per_s) row["gb_per_s"] = *op.gb_per_s;
  }
  return {{"threads", m.threads},
          {"precision", name_of(m.precision)},
          {"sgemm_gflops", m.sgemm_gflops},
          {"memory_gb_per_s", m.memory_gb_per_s},
          {"step_ms", m.step_ms},
          {"tokens_per_s", m.tokens_per_s},
          {"gflops", m.gflops},
          {"share", m.share()},
          {"log_overhead", m.log_overhead},
          {"ops", std::move(ops)}};
}

// The first results are those of the config's own precision, with one thread and with all.
void print_json(const RunConfig& config, const std::vector<Measurement>& results,
                std::optional<double> others) {
  const std::size_t own = results.size() / 2;
  Json json = to_json(results[own - 1]);
  json["peak_mb"] = results[0].peak_mb;
  json["gemm"] = name_of(config.train.gemm);
  json["other_cpu_share"] = others ? Json(*others) : nullptr;
  for (const Measurement& m : results) json["results"].push_back(to_json(m));
  for (std::size_t i = 0; i < own; ++i) json["by_threads"].push_back(json["results"][i]);
  std::cout << json_text(json);
}

std::string percent(double share) { return fixed(100 * share, 1) + "%"; }

void print_ops(const Measurement& m) {
  std::cout << "\nthe step in " << name_of(m.precision) << ", threads: " << m.threads << " (measured: memory "
            << fixed(m.memory_gb_per_s, 0) << " GB/s)\n";
  Columns table;
  add_row(table, {"op", "ms", "forward", "backward", "share", "GFLOP/s", "GB/s"});
  const auto cell = [](std::optional<double> number, int digits) {
    return number.value_or(0) > 0 ? fixed(*number, digits) : "";
  };
  for (const OpTime& op : m.ops)
    add_row(table, {op.name, fixed(op.ms, 3), cell(op.forward_ms, 3), cell(op.backward_ms, 3),
                    percent(op.share), cell(op.gflops, 1), cell(op.gb_per_s, 1)});
  add_row(table, {"step", fixed(m.step_ms, 3), "", "", percent(1), "", ""});
  print_table(table);
}

void print_tables(const RunConfig& config, const std::vector<Measurement>& results,
                  std::optional<double> others) {
  const ModelConfig& model = config.model;
  std::cout << config.name << ": L " << model.n_layer << ", C " << model.d_model << ", T " << model.context
            << ", B " << config.train.batch_size << "; " << machine_text(config.train) << "\n\n";
  Columns table;
  add_row(table, {"precision", "threads", "step ms", "tokens/s", "GFLOP/s", "SGEMM's", "share", "logging"});
  for (const Measurement& m : results)
    add_row(table, {name_of(m.precision), std::to_string(m.threads), fixed(m.step_ms, 2),
                    short_number(m.tokens_per_s), fixed(m.gflops, 1), fixed(m.sgemm_gflops, 1),
                    percent(m.share()), (m.log_overhead < 0 ? "" : "+") + percent(m.log_overhead)});
  print_table(table);
  std::cout << "share: of SGEMM's GFLOP/s, float32; logging: what every layer, every step adds\n";
  print_ops(results[results.size() / 2 - 1]);
  std::cout << "\npeak memory " << fixed(results[0].peak_mb, 0) << " MiB\n";
  if (others > noticeable_share)
    std::cout << "other programs took " << fixed(100 * *others, 0)
              << "% of this machine's CPU time: read the times as too long and the shares as rough\n";
}

Exit run(const CommandLine& line) {
  const Index steps = line.number_of<Index>("steps", min_steps, 1'000'000, 60);
  const RunConfig config = config_of(line);
  set_up_threads(line, config.train.threads);
  const OtherCpuTime other_time;
  const std::vector<Measurement> results = measure(config, steps);
  (line.has("json") ? print_json : print_tables)(config, results, other_time.share());
  return Exit::ok;
}

}  // namespace

const Command bench_command = {
    .name = "bench",
    .arguments = "[CONFIG]",
    .purpose = "speed, as a share of what this machine can do",
    .details =
        "Times training steps of a config (default: nanoGPT's CPU size) on random text, in fp32 and bf16,\n"
        "with one thread and with all, and sets them against the SGEMM rate of OpenBLAS in the same "
        "process.\n"
        "Says where a step's time goes, what logging adds, and whether other programs took the cores' time.",
    .options = {set_option,
                threads_option,
                {"steps", "N", "steps measured each time, at least 20 (default: 60)"},
                {"json", "", "print JSON"}},
    .run = run};

}  // namespace normscope
