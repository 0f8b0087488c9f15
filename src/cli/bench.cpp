// normscope bench [CONFIG]: how fast training steps are, as a share of what this machine's cores can do.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "config/names.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "kernels/elementwise.h"
#include "model/cost.h"
#include "run/logs.h"
#include "train/environment.h"
#include "train/step.h"

namespace normscope {
namespace {

constexpr Index warm_up_steps = 3;
constexpr Index min_steps = 20;
constexpr Index vocabulary_size = 65;
constexpr double noticeable_share = 0.05;  // of CPU time that other programs take

// nanoGPT's CPU preset: what is measured where no config is named.
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

// The speed of a step does not depend on the text.
std::vector<Token> random_text(Index characters) {
  std::vector<Token> tokens;
  const RandomStream stream(1, "bench");
  for (Index i = 0; i < characters; ++i)
    tokens.push_back(static_cast<Token>(stream.below(static_cast<std::uint64_t>(i), vocabulary_size)));
  return tokens;
}

// A folder for throw-away logs, removed at the end.
struct ScratchFolder : RunFolder {
  ScratchFolder()
      : RunFolder(std::filesystem::temp_directory_path() / text("normscope-", getpid()), Existing::refuse) {}
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path(), ignored);
  }
};

struct TimedStep {
  double seconds = 0;
  OpProfile ops;
};

// Training steps after a warm-up, {without, with} every layer logged, the fastest first. They alternate:
// neighbours meet the machine in the same state.
std::array<std::vector<TimedStep>, 2> time_steps(const RunConfig& config, const std::vector<Token>& tokens,
                                                 Index steps) {
  const ScratchFolder folder;
  CsvWriter layers = open_layers(folder), params = open_params(folder);
  Model<float> model(config.model, vocabulary_size, gemm_provider(config.train));
  const ParameterLayout& layout = model.layout();
  initialise(config.model, layout, 1, model.parameters);
  Optimizer<float> optimizer(config.train, layout);
  StepRunner runner(config, tokens);
  SiteStatistics<float> statistics(config.model.n_layer);
  const double bytes = sizeof(float) * static_cast<double>(layout.count());

  std::array<std::vector<TimedStep>, 2> timed;
  for (Index step = 1; step <= warm_up_steps + 2 * steps; ++step) {
    const bool logged = step % 2 == 0;
    TimedStep now;
    model.tape.set_profile(logged ? nullptr : &now.ops);
    const Stopwatch step_clock;
    statistics.clear();
    const StepResult& result = runner.compute(model, step, logged ? &statistics : nullptr);
    const Stopwatch update_clock;
    const std::vector<WeightChange>& changes =
        optimizer.update(step, config.train.lr, 1.0, model.gradients, model.parameters);
    // Reads gradient, weight and two moments; writes the last three.
    now.ops.add_forward({.name = "optimiser", .bytes_forward = 7 * bytes}, update_clock.seconds());
    if (logged) {
      write_layers(layers, step, statistics.rows());
      write_params(params, step, parameter_rows(config.train, model, result.norms, &changes));
    }
    now.seconds = step_clock.seconds();
    if (step > warm_up_steps) timed[logged].push_back(std::move(now));
  }
  for (std::vector<TimedStep>& sorted : timed) std::ranges::sort(sorted, {}, &TimedStep::seconds);
  return timed;
}

double median_ms(const std::vector<TimedStep>& sorted) { return 1e3 * sorted[sorted.size() / 2].seconds; }

// One kind of work of a step.
struct OpShare {
  std::string name;
  double share = 0, ms = 0;  // of the step; that share of the median step
  double forward_ms = 0, backward_ms = 0;
  std::optional<double> gflops{}, gb_per_s{};  // of what bounds it
};

// Where the median step's time goes: each op and the optimiser; `rest` is what none of them took (the batch,
// clearing gradients, their norm). Shares are those of the middle half of the steps, whose durations are the
// least disturbed.
std::vector<OpShare> op_shares(const std::vector<TimedStep>& sorted) {
  OpProfile sum;
  double whole = 0;
  for (std::size_t i = sorted.size() / 4; i < sorted.size() - sorted.size() / 4; ++i) {
    for (const OpProfile::Row& row : sorted[i].ops.rows()) sum.add(row);
    whole += sorted[i].seconds;
  }
  const double step_ms = median_ms(sorted), ms = step_ms / whole;
  std::vector<OpShare> shares;
  double rest = 1;
  for (const OpProfile::Row& row : sum.rows()) {
    OpShare share{row.name, row.seconds() / whole, ms * row.seconds(), ms * row.seconds_forward,
                  ms * row.seconds_backward};
    if (row.in > 0) share.name += text(' ', row.in, " -> ", row.out);
    if (row.flops > 0) share.gflops = row.flops / row.seconds() / 1e9;
    if (row.bytes > 0) share.gb_per_s = row.bytes / row.seconds() / 1e9;
    rest -= share.share;
    shares.push_back(std::move(share));
  }
  std::ranges::sort(shares, {}, [](const OpShare& op) { return -op.ms; });
  shares.push_back({"rest", rest, rest * step_ms});
  return shares;
}

// GB/s of y = a x + y over arrays far larger than the caches: the best of 5.
double measure_memory_rate() {
  constexpr Index count = 16 << 20;
  std::vector<float> x(count, 1.0f), y(count, 2.0f);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const Stopwatch watch;
    scale_add(count, 0.5f, x.data(), 1.0f, y.data());
    best = std::max(best, 3 * sizeof(float) * static_cast<double>(count) / watch.seconds() / 1e9);
  }
  return best;
}

// Ticks of all cores so far: all of them, and those that other programs, the kernel or a virtual machine's
// host took. 0 where the system does not tell.
struct CpuTicks {
  double all = 0, others = 0;
  CpuTicks() {
    std::ifstream file("/proc/stat");
    std::string cpu;
    file >> cpu;
    double ticks = 0;  // user, nice, system, idle, iowait, irq, softirq, steal
    for (int field = 0; field < 8 && file >> ticks; ++field) {
      all += ticks;
      if (field != 3 && field != 4) others += ticks;
    }
    others -= static_cast<double>(std::clock()) / CLOCKS_PER_SEC * static_cast<double>(sysconf(_SC_CLK_TCK));
  }
};

// The share of the machine's CPU time that others took since `start`; nothing where it is not known.
std::optional<double> others_share(const CpuTicks& start) {
  const CpuTicks end;
  if (!(end.all > start.all)) return std::nullopt;
  return std::clamp((end.others - start.others) / (end.all - start.all), 0.0, 1.0);
}

// Steps of one precision with one number of threads.
struct Measurement {
  Precision precision = Precision::fp32;
  int threads = 0;
  double step_ms = 0, tokens_per_s = 0, gflops = 0, log_overhead = 0, peak_mb = 0;
  std::vector<OpShare> ops;
  double sgemm_gflops = 0, memory_gb_per_s = 0;  // what the machine does with these threads
  double share() const { return gflops / sgemm_gflops; }
};

Measurement measure_steps(const RunConfig& config, const std::vector<Token>& tokens, Index steps) {
  const auto [plain, logged] = time_steps(config, tokens, steps);
  Measurement m;
  m.precision = config.train.precision;
  m.threads = thread_count();
  m.peak_mb = peak_rss_bytes() / 0x1p20;
  m.step_ms = median_ms(plain);
  m.log_overhead = median_ms(logged) / m.step_ms - 1;
  m.ops = op_shares(plain);
  const ParameterLayout layout(config.model, vocabulary_size);
  const Index sequences = config.train.grad_accum * config.train.batch_size;
  m.tokens_per_s = 1e3 / m.step_ms * static_cast<double>(sequences * config.model.context);
  m.gflops = training_flops_per_token(config.model, layout) * m.tokens_per_s / 1e9;
  return m;
}

// Both precisions, the config's own first, each with one thread and with all.
std::vector<Measurement> measure(RunConfig config, const std::vector<Token>& tokens, Index steps) {
  const std::set<int> thread_counts{1, thread_count()};
  const Precision own = config.train.precision;
  std::vector<Measurement> results;
  for (const Precision precision : {own, own == Precision::fp32 ? Precision::bf16 : Precision::fp32}) {
    config.train.precision = precision;
    for (const int threads : thread_counts) {
      set_thread_count(threads);
      results.push_back(measure_steps(config, tokens, steps));
    }
  }
  for (const int threads : thread_counts) {  // last, as these take memory of their own
    set_thread_count(threads);
    const double sgemm = measure_sgemm_gflops(), memory = measure_memory_rate();
    for (Measurement& m : results) {
      if (m.threads != threads) continue;
      m.sgemm_gflops = sgemm;
      m.memory_gb_per_s = memory;
    }
  }
  return results;
}

nlohmann::ordered_json to_json(const Measurement& m) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const OpShare& op : m.ops) {
    nlohmann::ordered_json row = {{"op", op.name},
                                  {"ms", op.ms},
                                  {"forward_ms", op.forward_ms},
                                  {"backward_ms", op.backward_ms},
                                  {"share", op.share}};
    if (op.gflops) row["gflops"] = *op.gflops;
    if (op.gb_per_s) row["gb_per_s"] = *op.gb_per_s;
    ops.push_back(std::move(row));
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

// The results of the config's own precision are the first: with one thread, with all.
void print_json(const RunConfig& config, const std::vector<Measurement>& results,
                std::optional<double> others) {
  const std::size_t own = results.size() / 2;
  nlohmann::ordered_json json = to_json(results[own - 1]);
  json["peak_mb"] = results[0].peak_mb;
  json["gemm"] = name_of(gemm_provider(config.train));
  json["other_cpu_share"] = others ? nlohmann::ordered_json(*others) : nullptr;
  for (const Measurement& m : results) json["results"].push_back(to_json(m));
  for (std::size_t i = 0; i < own; ++i) json["by_threads"].push_back(json["results"][i]);
  std::cout << json.dump(2) << '\n';
}

std::string percent(double share) { return fixed(100 * share, 1) + "%"; }

// A cell a column.
using Cells = std::vector<std::string>;
void add_row(std::vector<Cells>& columns, const Cells& row) {
  for (std::size_t i = 0; i < row.size(); ++i) columns[i].push_back(row[i]);
}

void print_ops(const Measurement& m) {
  std::cout << "\nthe step in " << name_of(m.precision) << ", threads: " << m.threads << " (measured: memory "
            << fixed(m.memory_gb_per_s, 0) << " GB/s)\n";
  std::vector<Cells> columns(7);
  add_row(columns, {"op", "ms", "forward", "backward", "share", "GFLOP/s", "GB/s"});
  const auto cell = [](std::optional<double> number, int digits) {
    return number.value_or(0) > 0 ? fixed(*number, digits) : "";
  };
  for (const OpShare& op : m.ops) {
    add_row(columns, {op.name, fixed(op.ms, 3), cell(op.forward_ms, 3), cell(op.backward_ms, 3),
                      percent(op.share), cell(op.gflops, 1), cell(op.gb_per_s, 1)});
  }
  add_row(columns, {"step", fixed(m.step_ms, 3), "", "", percent(1), "", ""});
  print_table(columns);
}

void print_tables(const RunConfig& config, const std::vector<Measurement>& results,
                  std::optional<double> others) {
  const ModelConfig& model = config.model;
  std::cout << config.name << ": L " << model.n_layer << ", C " << model.d_model << ", T " << model.context
            << ", B " << config.train.batch_size << "; " << machine_text(config.train) << "\n\n";
  std::vector<Cells> columns(8);
  add_row(columns, {"precision", "threads", "step ms", "tokens/s", "GFLOP/s", "SGEMM's", "share", "logging"});
  for (const Measurement& m : results) {
    add_row(columns, {name_of(m.precision), std::to_string(m.threads), fixed(m.step_ms, 2),
                      short_number(m.tokens_per_s), fixed(m.gflops, 1), fixed(m.sgemm_gflops, 1),
                      percent(m.share()), (m.log_overhead < 0 ? "" : "+") + percent(m.log_overhead)});
  }
  print_table(columns);
  std::cout << "share: of SGEMM's GFLOP/s, float32; logging: what every layer, every step adds\n";
  print_ops(results[results.size() / 2 - 1]);
  std::cout << "\npeak memory " << fixed(results[0].peak_mb, 0) << " MiB\n";
  if (others > noticeable_share)
    std::cout << "other programs took " << fixed(100 * *others, 0)
              << "% of this machine's CPU time: read the times as too long and the shares as rough\n";
}

Exit run(const CommandLine& line) {
  const Index steps = line.integer_of("steps", min_steps, 1'000'000, 60);

  RunConfig config = default_config();
  if (!line.positionals().empty()) {
    config = load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config;
    if (config.train.batch_size == 0) config.train.batch_size = default_config().train.batch_size;
  } else if (line.has("set")) {
    refuse("bench", "--set needs a CONFIG to change");
  }
  set_up_threads(line, config.train.threads);
  require_memory(config.model, vocabulary_size, config.train.batch_size);
  const std::vector<Token> tokens = random_text(std::max<Index>(100'000, 2 * config.model.context));

  const CpuTicks start;
  const std::vector<Measurement> results = measure(config, tokens, steps);
  const std::optional<double> others = others_share(start);
  (line.has("json") ? print_json : print_tables)(config, results, others);
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
