#include "cli/session.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/parallel.h"
#include "kernels/gemm/openblas.h"
#include "kernels/simd.h"
#include "logs/record.h"

namespace normscope {
namespace {

std::atomic<bool> stop_requested{false};

// A closing terminal, a scheduler or a pipe may send several signals, so only those of a person end the
// program at the second one.
void on_signal(int signal) {
  const bool again = stop_requested.exchange(true);
  if (again && (signal == SIGINT || signal == SIGTERM)) _exit(static_cast<int>(Exit::interrupted));
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) {
    struct sigaction inherited {};
    sigaction(signal, nullptr, &inherited);
    const bool ignored = inherited.sa_handler == SIG_IGN;  // nohup
    if (!ignored || signal == SIGINT || signal == SIGTERM) sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes: the write fails and is reported, as on a full disk
  return stop_requested;
}

Corpus corpus_of(const RunConfig& config) {
  return load_corpus(config.data.path, config.data.val_fraction, config.data.val_path, config.model.context);
}

Corpus corpus_of(const LoadedModel& model, const char* command) {
  Corpus corpus = corpus_of(model.config);
  if (const std::string other = corpus_difference(model.metadata, corpus); !other.empty())
    print_error(text("[", command, "] the corpus has changed since this model was trained on ", other));
  if (!(corpus.vocab == model.vocab)) fail(command, "the corpus has other characters than the model knows");
  return corpus;
}

Threads set_up_threads(const CommandLine& line, Index config_threads, int processes) {
  constexpr Index max_threads = 1024;
  const Index wish = line.number_of<Index>("threads", 1, max_threads, config_threads);
  int threads = wish > 0 ? static_cast<int>(wish) : default_thread_count();
  if (processes > 1 && wish == 0)
    threads = std::clamp(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / processes, 1, threads);
  if (threads > max_threads)
    refuse("threads", "OMP_NUM_THREADS: got ", threads, "; expected 1 to ", max_threads);
  set_thread_count(threads);
  isa_name();  // throws for an invalid NORMSCOPE_ISA before anything runs
  pin_openblas();
  return {.most = threads, .is_fixed = wish > 0};
}

std::string machine_text(const TrainConfig& config) {
  const bool own_alone = config.gemm == GemmProvider::native;
  const char* own = own_alone ? "own GEMM; " : config.gemm == GemmProvider::automatic ? "own GEMM and " : "";
  return text(counted(thread_count(), "thread"), ", ", isa_name(), ", ", own, blas_text(),
              own_alone ? " unused" : "");
}

}  // namespace normscope
