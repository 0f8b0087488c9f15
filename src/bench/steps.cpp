#include "bench/steps.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "bench/machine.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/stopwatch.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "model/cost.h"
#include "train/step.h"

namespace normscope {
namespace {

constexpr Index warm_up_steps = 3;
constexpr Index vocabulary_size = 65;

// The speed of a step does not depend on the text.
std::vector<Token> random_text(Index characters) {
  std::vector<Token> tokens;
  const RandomStream stream(1, "bench");
  for (Index i = 0; i < characters; ++i)
    tokens.push_back(static_cast<Token>(stream.below(i, vocabulary_size)));
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

// Listens to a tape; the calls of one op with the same features make one row.
struct OpProfile : OpListener {
  struct Row {
    OpCall call;  // rows: of all its calls together
    double forward_seconds = 0, backward_seconds = 0;
    double seconds() const { return forward_seconds + backward_seconds; }
  };

  void on_forward(const OpCall& call, double seconds) override { add({call, seconds, 0}); }
  void on_backward(const OpCall& call, double seconds) override {
    add({{call.name, 0, call.in, call.out}, 0, seconds});
  }
  void add(const Row& more) {
    const auto same = [&](const Row& row) {
      return std::string_view(row.call.name) == more.call.name && row.call.in == more.call.in &&
             row.call.out == more.call.out;
    };
    const auto found = std::ranges::find_if(rows, same);
    if (found == rows.end()) return rows.push_back(more);
    found->call.rows += more.call.rows;
    found->forward_seconds += more.forward_seconds;
    found->backward_seconds += more.backward_seconds;
  }

  std::vector<Row> rows;  // in the order of their first call
};

// The floating-point operations of forward and backward of a compute-bound op, else 0.
double flops_of(const OpCall& call, Index context) {
  const std::string_view name = call.name;
  const double rows = static_cast<double>(call.rows), in = static_cast<double>(call.in);
  // Three products: y, dx and dW.
  if (name.starts_with("linear")) return 6 * rows * in * static_cast<double>(call.out);
  // Six products, S, O, dV, dP, dQ and dK, each of the unmasked half.
  if (name == "attention") return 6 * rows * in * static_cast<double>(context + 1);
  return 0;
}

// The bytes that forward and backward of a memory-bound op must read and write, else 0.
double bytes_of(const OpCall& call) {
  // Tensors of (rows, in) numbers, read and written, forward + backward. Of the optimiser `in` counts them.
  constexpr std::pair<std::string_view, double> tensors[] = {
      {"norm", 2 + 3},          {"qk_norm", 2 + 3},       {"residual", 3},    {"scale", 2 + 2},
      {"rotary", 2 + 2},        {"learned scale", 2 + 4}, {"dropout", 2 + 2}, {"swiglu", 3 + 5},
      {"cross-entropy", 1 + 2}, {"embedding", 2 + 3},     {"optimiser", 1}};
  const auto* found =
      std::ranges::find(tensors, std::string_view(call.name), &std::pair<std::string_view, double>::first);
  if (found == std::end(tensors)) return 0;
  return found->second * static_cast<double>(sizeof(float)) * static_cast<double>(call.rows * call.in);
}

struct TimedStep {
  double seconds = 0;
  OpProfile ops;
};

// Training steps after a warm-up, {without, with} every layer logged. They alternate, so that both meet the
// machine in the same states.
std::array<std::vector<TimedStep>, 2> time_steps(const RunConfig& config, const std::vector<Token>& tokens,
                                                 Index steps) {
  const ScratchFolder folder;
  LayerLogs logs(folder);
  Model<float> model(config.model, vocabulary_size, config.train.gemm_mode());
  const ParameterLayout& layout = model.layout();
  initialise(config.model, layout, 1, model.parameters);
  Optimizer<float> optimizer(config.train, layout);
  StepRunner runner(config, model, tokens);
  SiteStatistics statistics(config.model.n_layer, config.model.n_head);

  // Gradient, weight and the moments are read, and all but the gradient written.
  const Index optimizer_numbers = config.train.optimizer == OptimizerKind::adamw ? 4 + 3 : 3 + 2;

  std::array<std::vector<TimedStep>, 2> timed;
  for (Index step = 1; step <= warm_up_steps + 2 * steps; ++step) {
    const bool logged = step % 2 == 0;
    TimedStep now;
    model.tape.set_op_listener(logged ? nullptr : &now.ops);
    const Stopwatch step_clock;
    statistics.clear();
    const StepResult& result = runner.compute(step, logged ? &statistics : nullptr);
    const Stopwatch update_clock;
    const std::vector<WeightChange>& changes =
        optimizer.update(step, config.train.lr, 1.0, model.gradients, model.parameters);
    now.ops.on_forward({"optimiser", layout.count(), optimizer_numbers, 1}, update_clock.seconds());
    if (logged) {
      const auto params = parameter_rows(config.train, model, result.norms, &changes);
      logs.write(step, statistics.rows(), params, statistics.head_rows());
    }
    now.seconds = step_clock.seconds();
    if (step > warm_up_steps) timed[logged].push_back(std::move(now));
  }
  return timed;
}

// The median over pairs of neighbours in time, of which few meet a slow moment of the machine in one alone.
double log_overhead(const std::array<std::vector<TimedStep>, 2>& timed) {
  std::vector<double> overheads;
  for (std::size_t i = 0; i < timed[0].size(); ++i)
    overheads.push_back(timed[1][i].seconds / timed[0][i].seconds - 1);
  std::ranges::nth_element(overheads, overheads.begin() + std::ssize(overheads) / 2);
  return overheads[overheads.size() / 2];
}

double median_ms(const std::vector<TimedStep>& sorted) { return 1e3 * sorted[sorted.size() / 2].seconds; }

// Shares are of the middle half of the sorted steps, which are the least disturbed.
std::vector<OpTime> op_times(const std::vector<TimedStep>& sorted, Index context) {
  OpProfile sum;
  double whole = 0;
  for (std::size_t i = sorted.size() / 4; i < sorted.size() - sorted.size() / 4; ++i) {
    for (const OpProfile::Row& row : sorted[i].ops.rows) sum.add(row);
    whole += sorted[i].seconds;
  }
  const double step_ms = median_ms(sorted), ms = step_ms / whole;
  std::vector<OpTime> ops;
  double rest = 1;
  for (const OpProfile::Row& row : sum.rows) {
    OpTime op{row.call.name, row.seconds() / whole, ms * row.seconds(), ms * row.forward_seconds,
              ms * row.backward_seconds};
    const double flops = flops_of(row.call, context), bytes = bytes_of(row.call);
    if (op.name.starts_with("linear")) op.name += text(' ', row.call.in, " -> ", row.call.out);
    if (flops > 0) op.gflops = 1e-9 * flops / row.seconds();
    if (bytes > 0) op.gb_per_s = 1e-9 * bytes / row.seconds();
    rest -= op.share;
    ops.push_back(std::move(op));
  }
  std::ranges::sort(ops, std::greater(), &OpTime::ms);
  ops.push_back({"rest", rest, rest * step_ms});
  return ops;
}

Measurement measure_steps(const RunConfig& config, const std::vector<Token>& tokens, Index steps) {
  std::array<std::vector<TimedStep>, 2> timed = time_steps(config, tokens, steps);
  const double overhead = log_overhead(timed);
  std::vector<TimedStep>& plain = timed[0];
  std::ranges::sort(plain, {}, &TimedStep::seconds);
  const double step_ms = median_ms(plain);
  const Index tokens_per_step = config.tokens_per_step();
  const double tokens_per_s = 1e3 / step_ms * static_cast<double>(tokens_per_step);
  const double flops = training_flops_per_token(config.model, ParameterLayout(config.model, vocabulary_size));
  return {.precision = config.train.precision,
          .threads = thread_count(),
          .step_ms = step_ms,
          .tokens_per_s = tokens_per_s,
          .gflops = 1e-9 * flops * tokens_per_s,
          .log_overhead = overhead,
          .peak_mb = peak_rss_bytes() / 0x1p20,
          .ops = op_times(plain, config.model.context)};
}

}  // namespace

std::vector<Measurement> measure(RunConfig config, Index steps) {
  require_memory(config.model, vocabulary_size, config.train.batch_size);
  const std::vector<Token> tokens = random_text(std::max<Index>(100'000, 2 * config.model.context));
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

}  // namespace normscope
