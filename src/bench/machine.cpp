#include "bench/machine.h"

#include <cblas.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/stopwatch.h"
#include "kernels/gemm/openblas.h"
#include "kernels/pointwise.h"

namespace normscope {

double measure_sgemm_gflops() {
  openblas_set_num_threads(thread_count());
  double best = 0;
  for (const int n : {512, 1024, 2048}) {
    const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
    std::vector<float> c(n * n);
    std::vector<double> times;
    for (int run = 0; run < 6; ++run) {
      const Stopwatch watch;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                  c.data(), n);
      if (run > 0) times.push_back(watch.seconds());  // the first warms up
    }
    std::ranges::sort(times);
    best = std::max(best, 2e-9 * n * n * n / times[times.size() / 2]);
  }
  pin_openblas();
  return best;
}

double measure_memory_rate() {
  constexpr Index count = 16 << 20;
  const std::vector<float> x(count, 1.0f);
  std::vector<float> y(count, 2.0f);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const Stopwatch watch;
    axpby(count, 0.5f, x.data(), 1.0f, y.data());
    best = std::max(best, 3e-9 * sizeof(float) * count / watch.seconds());
  }
  return best;
}

OtherCpuTime::Ticks OtherCpuTime::now() {
  Ticks ticks;
  std::ifstream file("/proc/stat");
  std::string cpu;
  file >> cpu;
  double count = 0;  // user, nice, system, idle, iowait, irq, softirq, steal
  for (int field = 0; field < 8 && file >> count; ++field) {
    ticks.all += count;
    if (field != 3 && field != 4) ticks.others += count;
  }
  const double own_seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  ticks.others -= own_seconds * static_cast<double>(sysconf(_SC_CLK_TCK));
  return ticks;
}

std::optional<double> OtherCpuTime::share() const {
  const Ticks end = now();
  if (!(end.all > start_.all)) return std::nullopt;
  return std::clamp((end.others - start_.others) / (end.all - start_.all), 0.0, 1.0);
}

}  // namespace normscope
