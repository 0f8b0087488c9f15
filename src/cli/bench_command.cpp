// normscope bench [CONFIG]: the speed of training steps, compared with OpenBLAS's SGEMM on the same threads.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/machine.h"
#include "core/parallel.h"
#include "io/json.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "model/model.h"
#include "train/estimates.h"
#include "train/step.h"

namespace normscope {
namespace {

constexpr Index min_steps = 20, warm_up_steps = 3;
constexpr Index vocabulary_size = 65;

// nanoGPT's CPU preset.
constexpr const char* default_model =
    R"({"model": {"n_layer": 4, "n_head": 4, "d_model": 128, "context": 64}})";
constexpr Index default_batch_size = 12;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// GFLOP/s of OpenBLAS's SGEMM with thread_count() threads: the best of 512^3, 1024^3, 2048^3 (each the median
// of 5, or of as many as half a second holds).
double sgemm_gflops() {
  openblas_set_num_threads(thread_count());
  double best = 0;
  for (const int n : {512, 1024, 2048}) {
    const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
    std::vector<float> c(n * n);
    std::vector<double> seconds;
    const Stopwatch all_runs;
    for (int run = 0; run < 6 && (run < 2 || all_runs.seconds() < 0.5); ++run) {
      const Stopwatch watch;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                  c.data(), n);
      if (run > 0) seconds.push_back(watch.seconds());  // the first warms up
    }
    best = std::max(best, 2e-9 * n * n * n / median(seconds));
  }
  pin_openblas();
  return best;
}

// The floating-point operations of forward and backward of an op that arithmetic bounds, else 0.
double flops_of(const OpCall& call, Index context) {
  const std::string_view name = call.name;
  const double rows = static_cast<double>(call.rows), in = static_cast<double>(call.in);
  // Three products: y, dx and dW.
  if (name.starts_with("linear")) return 6 * rows * in * static_cast<double>(call.out);
  // Six products, S, O, dV, dP, dQ and dK, each of the unmasked half.
  if (name == "attention") return 6 * rows * in * static_cast<double>(context + 1);
  return 0;
}

// Adds up time and arithmetic of each op.
struct OpProfile : OpListener {
  struct Row {
    double seconds = 0, flops = 0;
  };

  void on_forward(const OpCall& call, double seconds) override {
    Row& row = rows[call.name];
    row.seconds += seconds;
    row.flops += flops_of(call, context);
  }
  void on_backward(const OpCall& call, double seconds) override { rows[call.name].seconds += seconds; }

  Index context = 0;
  std::map<std::string_view, Row> rows;
};

// A new folder among the system's temporary files, removed with its content at the end of the object's life.
struct TemporaryFolder {
  std::string path = (std::filesystem::temp_directory_path() / "normscope-XXXXXX").string();
  TemporaryFolder() {
    require(::mkdtemp(path.data()) != nullptr, "bench", path, ": cannot be created: ", errno_text());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

struct Times {
  std::vector<double> seconds, log_overheads;  // of each plain step; of the logged step after it, as a share
  OpProfile ops;                               // of the plain steps
};

// Times training steps on random text. Plain and logged steps alternate, so both run under the same load.
Times time_steps(const RunConfig& config, Index steps) {
  require_memory(config, vocabulary_size, config.train.batch_size);
  std::vector<Token> tokens(std::max<Index>(100'000, 2 * config.model.context));
  const RandomStream stream(1, "bench");
  for (Index i = 0; i < std::ssize(tokens); ++i)
    tokens[i] = static_cast<Token>(stream.below(i, vocabulary_size));

  const std::atomic<bool>& stop = stop_on_signals();  // so that the temporary folder is removed
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.path, Existing::refuse);
  LayerLogs logs(folder);
  Model<float> model(config.model, vocabulary_size, config.train.gemm_mode());
  initialise(config.model, model.layout(), 1, model.parameters);
  Optimizer<float> optimizer(config.train, model.layout());
  StepRunner runner(config, model, tokens);
  SiteStatistics statistics(config.model);
  Times times;
  times.ops.context = config.model.context;
  Index step = 0;
  const auto seconds_of_step = [&](bool logged) {
    if (stop) throw Error(Exit::interrupted, "[bench] interrupted");
    model.tape.set_op_listener(logged ? nullptr : &times.ops);
    const Stopwatch step_clock;
    statistics.clear();
    const StepResult& result = runner.compute(++step, logged ? &statistics : nullptr);
    const Stopwatch update_clock;
    const std::vector<WeightChange>& changes =
        optimizer.update(step, config.train.lr, 1.0, model.gradients, model.parameters);
    if (!logged) times.ops.rows["optimiser"].seconds += update_clock.seconds();
    if (logged) {
      const auto params = parameter_rows(config.train, model, result.norms, &changes);
      logs.write(step, statistics.rows(), params, statistics.head_rows());
    }
    return step_clock.seconds();
  };

  for (Index i = 0; i < warm_up_steps; ++i) seconds_of_step(i % 2 == 1);
  times.ops.rows.clear();
  for (Index i = 0; i < steps; ++i) {
    times.seconds.push_back(seconds_of_step(false));
    times.log_overheads.push_back(seconds_of_step(true) / times.seconds.back() - 1);
  }
  return times;
}

// The ops and the optimiser, the longest first, then the rest: the batch, clearing gradients, their norm.
// Times and shares are of the median step; an op that arithmetic does not bound has no GFLOP/s.
Json op_times(const Times& times, double step_ms) {
  double whole = 0, rest = 1;
  for (const double seconds : times.seconds) whole += seconds;
  Json ops = Json::array();
  const auto add = [&](std::string_view op, double share, const Json& gflops) {
    ops.push_back({{"op", op}, {"ms", share * step_ms}, {"share", share}, {"gflops", gflops}});
  };
  for (const auto& [name, row] : times.ops.rows) {
    const double share = row.seconds / whole;
    add(name, share, row.flops > 0 ? Json(1e-9 * row.flops / row.seconds) : Json());
    rest -= share;
  }
  std::sort(ops.begin(), ops.end(), [](const Json& a, const Json& b) { return a["ms"] > b["ms"]; });
  add("rest", rest, nullptr);
  return ops;
}

// The numbers of --json. `share`: gflops over sgemm_gflops; `log_overhead`: extra time with every layer
// logged, as a share.
Json measure(const RunConfig& config, Index steps) {
  const Times times = time_steps(config, steps);
  const double peak_mb = peak_rss_bytes() / 0x1p20;  // before SGEMM, which takes memory of its own
  const double step_ms = 1e3 * median(times.seconds);
  const double tokens_per_s = 1e3 / step_ms * static_cast<double>(config.tokens_per_step());
  const ParameterLayout layout(config.model, vocabulary_size);
  const double gflops = 1e-9 * training_flops_per_token(config.model, layout) * tokens_per_s,
               most = sgemm_gflops();
  return {{"threads", thread_count()}, {"precision", name_of(config.train.precision)},
          {"step_ms", step_ms},        {"tokens_per_s", tokens_per_s},
          {"gflops", gflops},          {"sgemm_gflops", most},
          {"share", gflops / most},    {"log_overhead", median(times.log_overheads)},
          {"peak_mb", peak_mb},        {"ops", op_times(times, step_ms)}};
}

std::string percent(double share) { return fixed(100 * share, 1) + "%"; }

// A line of advice where OpenBLAS is older than the processor, and so takes its kernels for a Prescott.
std::string advice_on_openblas() {
  if (blas_info().kernel != "Prescott" || !simd_kernels().has_fma) return "";
  const bool has_avx512 = instruction_set().name_of_floats == std::string_view("avx512");
  return text(blas_text(), " does not know this processor; for its faster kernels set OPENBLAS_CORETYPE=",
              has_avx512 ? "SKYLAKEX" : "HASWELL", "\n");
}

void print_tables(const RunConfig& config, const Json& found) {
  const ModelConfig& model = config.model;
  std::cout << config.name << ": L " << model.n_layer << ", C " << model.d_model << ", T " << model.context
            << ", B " << config.train.batch_size << ", " << name_of(config.train.precision) << "; "
            << machine_text(config.train) << "\n\n"
            << fixed(found["step_ms"], 2) << " ms a step, " << short_number(found["tokens_per_s"])
            << " tokens/s, peak memory " << fixed(found["peak_mb"], 0) << " MiB\n"
            << fixed(found["gflops"], 1) << " GFLOP/s, " << percent(found["share"]) << " of SGEMM's "
            << fixed(found["sgemm_gflops"], 1) << " in float32\n"
            << (found["share"] > 1
                    ? "above 100%: other programs ran during the SGEMM, or the step is in bf16\n"
                    : "")
            << advice_on_openblas() << "logging every layer at every step adds "
            << percent(found["log_overhead"]) << "\n\n";
  Rows table = {{"op", "ms", "share", "GFLOP/s"}};
  for (const Json& op : found["ops"])
    table.push_back({op["op"], fixed(op["ms"], 3), percent(op["share"]),
                     op["gflops"].is_null() ? "" : fixed(op["gflops"], 1)});
  print_table(table);
}

Exit run(const CommandLine& line) {
  const Index steps = line.number_of<Index>("steps", min_steps, 1'000'000, 60);
  const std::vector<std::string> sets = line.all_of("set");
  const LoadOptions options = {.need_data = false};
  const auto& given = line.positionals();
  RunConfig config = given.empty() ? load_config_text(default_model, "bench", sets, options).config
                                   : load_config(given[0], sets, options).config;
  if (config.train.batch_size == 0) config.train.batch_size = default_batch_size;
  set_up_threads(line, config.train.threads);
  const Json found = measure(config, steps);
  if (stop_on_signals()) return Exit::interrupted;  // during the SGEMM
  if (line.has("json"))
    std::cout << json_text(found);
  else
    print_tables(config, found);
  return Exit::ok;
}

}  // namespace

const Command bench_command = {
    .name = "bench",
    .arguments = "[CONFIG]",
    .purpose = "measure speed, as a share of what this machine can do",
    .details =
        "Times training steps of a config (default: nanoGPT's CPU size) on random text, op by op, with and\n"
        "without logs, and compares them with the SGEMM rate of OpenBLAS in the same process.",
    .options = {set_option,
                threads_option,
                {"steps", "N", "steps measured, at least 20 (default: 60)"},
                {"json", "", "print JSON"}},
    .run = run};

}  // namespace normscope
