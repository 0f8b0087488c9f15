// normscope bench [CONFIG]: how fast training steps are, as a share of what this machine's cores can do.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "config/names.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "io/csv.h"
#include "kernels/elementwise.h"
#include "model/cost.h"
#include "train/environment.h"
#include "train/trainer.h"

namespace normscope {
namespace {

constexpr Index warm_up_steps = 3;
constexpr Index least_steps = 20;
constexpr Index vocabulary_size = 65;

// nanoGPT's CPU preset: what is measured where no config is named.
RunConfig default_config() {
  RunConfig config;
  config.name = "bench";
  config.model.n_layer = 4;
  config.model.n_head = 4;
  config.model.d_model = 128;
  config.model.d_ff = 512;
  config.model.context = 64;
  config.train.batch_size = 12;
  return config;
}

// Random characters: the speed of a step does not depend on the text.
Corpus random_corpus(Index characters) {
  std::u32string alphabet;
  for (Index i = 0; i < vocabulary_size; ++i) alphabet.push_back(static_cast<char32_t>('0' + i));
  const std::u32string_view all = alphabet;
  Corpus corpus;
  corpus.vocab = Vocabulary::of({&all, 1});
  const RandomStream stream(1, "bench");
  for (Index i = 0; i < characters; ++i) {
    corpus.train.push_back(static_cast<Token>(stream.below(static_cast<std::uint64_t>(i), vocabulary_size)));
  }
  return corpus;
}

// A folder for throw-away runs, removed at the end.
struct ScratchFolder {
  ScratchFolder() : path(std::filesystem::temp_directory_path() / text("normscope-bench-", getpid())) {}
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// step_ms of steps after the warm-up, without and with every layer logged, and measure_handover_ns() between
// them: a virtual machine's cores may be moved at any time that they wait.
struct StepTimes {
  std::vector<double> without, with, handover_ns;
};

class HandoverWatch : public TrainObserver {
 public:
  explicit HandoverWatch(std::vector<double>& handover_ns) : handover_ns_(handover_ns) {}
  void on_step(const Progress& progress) override {
    constexpr Index every = 8;
    if (progress.step % every == 0) handover_ns_.push_back(measure_handover_ns());
  }

 private:
  std::vector<double>& handover_ns_;
};

// An ordinary training run that logs every other step, its own log read back: neighbours are timed on the
// same machine in the same mood.
StepTimes measure_steps(RunConfig config, const Corpus& corpus, Index steps) {
  const ScratchFolder scratch;
  config.train.steps = warm_up_steps + 2 * steps + 1;  // the last one is always logged: it is left out
  config.eval.every = config.checkpoint.every = 0;
  config.log.every = 1;
  config.log.layers_every = 2;
  RunFolder folder(scratch.path.string(), Existing::refuse);
  StepTimes times;
  HandoverWatch watch(times.handover_ns);
  const std::atomic<bool> never{false};
  Trainer(config, corpus, folder, watch).run(never);

  CsvReader metrics(folder.file(metrics_file));
  const std::size_t step_ms = metrics.column("step_ms");
  for (Index step = 1; metrics.next() && step < config.train.steps; ++step) {
    if (step <= warm_up_steps) continue;
    const bool logged = step % config.log.layers_every == 0;
    (logged ? times.with : times.without).push_back(metrics.number(step_ms).value());
  }
  return times;
}

// One kind of work of a step.
struct OpShare {
  std::string name;
  double ms = 0, forward_ms = 0, backward_ms = 0, share = 0;
  std::optional<double> gflops, gb_per_s;  // of what bounds it
};

// Where a step's time goes: each op, the optimiser, the gradient's norm; `rest` is what none of them took.
std::vector<OpShare> measure_ops(const RunConfig& config, const Corpus& corpus, Index steps) {
  Model<float> model(config.model, vocabulary_size, gemm_provider(config.train));
  initialise(config.model, model.layout(), 1, model.parameters);
  Optimizer<float> optimizer(config.train, model.layout());
  StepRunner runner(config, corpus.train);
  OpProfile profile;
  double whole = 0;
  const double bytes = sizeof(float) * static_cast<double>(model.layout().count());
  for (Index step = 1; step <= warm_up_steps + steps; ++step) {
    const bool counted = step > warm_up_steps;
    model.tape.set_profile(counted ? &profile : nullptr);
    const OpClock step_clock;
    runner.compute(model, step);
    const OpClock update_clock;
    optimizer.update(step, config.train.lr, 1.0, model.gradients, model.parameters);
    if (!counted) continue;
    // Reads gradient, weight and two moments; writes the last three.
    profile.add_forward({.name = "optimiser", .bytes_forward = 7 * bytes}, update_clock.seconds());
    whole += step_clock.seconds();
  }
  std::vector<OpShare> shares;
  double told = 0;
  for (const OpProfile::Row& row : profile.rows()) {
    const double ms = 1e3 / static_cast<double>(steps);
    OpShare share{row.name,
                  ms * row.seconds(),
                  ms * row.seconds_forward,
                  ms * row.seconds_backward,
                  row.seconds() / whole,
                  {},
                  {}};
    if (row.in > 0) share.name += text(' ', row.in, " -> ", row.out);
    if (row.flops > 0) share.gflops = row.flops / row.seconds() / 1e9;
    if (row.bytes > 0) share.gb_per_s = row.bytes / row.seconds() / 1e9;
    told += row.seconds();
    shares.push_back(std::move(share));
  }
  std::sort(shares.begin(), shares.end(), [](const OpShare& a, const OpShare& b) { return a.ms > b.ms; });
  shares.push_back(
      {"rest", 1e3 * (whole - told) / static_cast<double>(steps), 0, 0, 1 - told / whole, {}, {}});
  return shares;
}

// GB/s of y = a x + y over arrays far larger than the caches: the median of 5.
double measure_memory_rate() {
  constexpr Index count = 16 << 20;
  std::vector<float> x(count, 1.0f), y(count, 2.0f);
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const OpClock clock;
    scale_add(count, 0.5f, x.data(), 1.0f, y.data());
    rates.push_back(3 * sizeof(float) * static_cast<double>(count) / clock.seconds() / 1e9);
  }
  return median(rates);
}

struct Measurement {
  int threads = 0;
  double step_ms = 0, tokens_per_s = 0, gflops = 0, share = 0, log_overhead = 0, sgemm_gflops = 0,
         memory_gb_per_s = 0, handover_ns = 0, peak_mb = 0;
  std::vector<OpShare> ops;
};

Measurement measure(const RunConfig& config, const Corpus& corpus, Index steps, int threads) {
  set_thread_count(threads);
  Measurement m;
  m.threads = threads;
  const StepTimes times = measure_steps(config, corpus, steps);
  m.ops = measure_ops(config, corpus, steps);
  m.peak_mb = peak_rss_bytes() / 0x1p20;  // of training; measuring SGEMM takes memory of its own
  m.sgemm_gflops = measure_sgemm_gflops();
  m.memory_gb_per_s = measure_memory_rate();
  m.step_ms = median(times.without);
  m.handover_ns = median(times.handover_ns);
  m.log_overhead = median(times.with) / m.step_ms - 1;
  const ParameterLayout layout(config.model, vocabulary_size);
  const double tokens =
      static_cast<double>(config.train.grad_accum * config.train.batch_size * config.model.context);
  m.tokens_per_s = tokens / m.step_ms * 1e3;
  m.gflops = training_flops_per_token(config.model, layout) * m.tokens_per_s / 1e9;
  m.share = m.gflops / m.sgemm_gflops;
  return m;
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
          {"sgemm_gflops", m.sgemm_gflops},
          {"memory_gb_per_s", m.memory_gb_per_s},
          {"handover_ns", m.handover_ns},
          {"step_ms", m.step_ms},
          {"tokens_per_s", m.tokens_per_s},
          {"gflops", m.gflops},
          {"share", m.share},
          {"log_overhead", m.log_overhead},
          {"ops", std::move(ops)}};
}

}  // namespace

int bench_command(int argc, char** argv) {
  CommandLine line(
      "bench",
      "Times training steps of a config (default: nanoGPT's CPU size) on random text and sets them against\n"
      "the SGEMM rate of OpenBLAS in the same process.",
      "[CONFIG]");
  add_config_options(line);
  line.option("steps", "N", "steps measured, at least 20 (default: 60)");
  line.flag("json", "print JSON");
  if (!line.parse(argc, argv, 0, 1)) return 0;
  const Index steps = line.integer_of("steps", least_steps, 1'000'000).value_or(60);

  RunConfig config = default_config();
  if (!line.positionals().empty()) {
    config = load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config;
    if (config.train.batch_size == 0) config.train.batch_size = default_config().train.batch_size;
  } else if (line.has("set")) {
    refuse("bench", "--set needs a CONFIG to change");
  }
  set_up_threads(line, config.train.threads);
  require_memory(config.model, vocabulary_size, config.train.batch_size);
  const Corpus corpus = random_corpus(std::max<Index>(100'000, 2 * config.model.context));

  const int all = thread_count();
  std::vector<Measurement> results;
  if (all > 1) results.push_back(measure(config, corpus, steps, 1));
  results.push_back(measure(config, corpus, steps, all));

  if (line.has("json")) {
    nlohmann::ordered_json json = to_json(results.back());
    json["precision"] = name_of(config.train.precision);
    json["peak_mb"] = results.front().peak_mb;
    json["gemm"] = name_of(gemm_provider(config.train));
    for (const Measurement& m : results) json["by_threads"].push_back(to_json(m));
    std::cout << json.dump(2) << '\n';
    return static_cast<int>(Exit::ok);
  }
  const ModelConfig& model = config.model;
  std::cout << config.name << ": L " << model.n_layer << ", C " << model.d_model << ", T " << model.context
            << ", B " << config.train.batch_size << "; " << machine_text(config.train) << "\n\n"
            << "threads  SGEMM GFLOP/s   step ms   tokens/s    GFLOP/s   share of SGEMM   logging every "
               "layer, every step\n";
  const auto right = [](const std::string& cell, std::size_t width) {
    return std::string(cell.size() < width ? width - cell.size() : 0, ' ') + cell;
  };
  for (const Measurement& m : results) {
    std::cout << right(std::to_string(m.threads), 7) << right(fixed(m.sgemm_gflops, 1), 15)
              << right(fixed(m.step_ms, 2), 10) << right(short_number(m.tokens_per_s), 11)
              << right(fixed(m.gflops, 1), 11) << right(fixed(100 * m.share, 1) + "%", 17)
              << right(fixed(100 * m.log_overhead, 1) + "%", 34) << '\n';
  }
  const Measurement& last = results.back();
  std::cout << "\nof a step with " << last.threads << (last.threads == 1 ? " thread" : " threads")
            << " (measured: memory " << fixed(last.memory_gb_per_s, 0) << " GB/s"
            << (last.threads == 1 ? "" : text("; from thread to thread ", fixed(last.handover_ns, 0), " ns"))
            << ")\n"
            << "op                        ms   forward  backward   share   GFLOP/s   GB/s\n";
  for (const OpShare& op : last.ops) {
    std::cout << op.name << std::string(op.name.size() < 20 ? 20 - op.name.size() : 1, ' ')
              << right(fixed(op.ms, 3), 8) << right(fixed(op.forward_ms, 3), 10)
              << right(fixed(op.backward_ms, 3), 10) << right(fixed(100 * op.share, 1) + "%", 8)
              << right(op.gflops ? fixed(*op.gflops, 1) : "", 10)
              << right(op.gb_per_s ? fixed(*op.gb_per_s, 1) : "", 7) << '\n';
  }
  std::cout << "\npeak memory " << fixed(results.front().peak_mb, 0) << " MiB\n";
  return static_cast<int>(Exit::ok);
}

}  // namespace normscope
