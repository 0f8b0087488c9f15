#include "core/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "core/control_groups.h"

namespace normscope {
namespace {

cpu_set_t mask;
bool has_mask = false;  // false on machines with more processors than a cpu_set_t holds

void take_mask(int, char**, char**) { has_mask = sched_getaffinity(0, sizeof mask, &mask) == 0; }
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)(int, char**,
                                                                                char**) = take_mask;

__attribute__((constructor)) void after_libraries() { unbind_thread(); }

int cores_in_mask() {
  if (!has_mask) return static_cast<int>(std::thread::hardware_concurrency());
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
  }
  return static_cast<int>(cores.size());
}

}  // namespace

void unbind_thread() {
  if (has_mask) sched_setaffinity(0, sizeof mask, &mask);
}

double cpu_quota(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& folder : control_groups("cpu", root)) {
    std::ifstream both(folder + "/cpu.max"), one(folder + "/cpu.cfs_quota_us"),
        other(folder + "/cpu.cfs_period_us");
    double quota = 0, period = 0;  // no limit: "max" or -1
    if ((both >> quota >> period || (one >> quota && other >> period)) && quota > 0 && period > 0)
      least = std::min(least, quota / period);
  }
  return least;
}

int usable_cores() {
  static const int cores =
      static_cast<int>(std::clamp(std::ceil(cpu_quota()), 1.0, std::max(1.0, 1.0 * cores_in_mask())));
  return cores;
}

int busy_threads_elsewhere() {
  int least = std::numeric_limits<int>::max();  // of three looks, so that short-lived threads do not count
  for (int look = 0; look < 3; ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ifstream file("/proc/stat");
    int running = 1;  // this thread
    for (std::string word; file >> word;)
      if (word == "procs_running") file >> running;
    least = std::min(least, running - 1);
  }
  return least;
}

int cores_left_by(int busy_threads) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);  // also those that this program may not use
  return static_cast<int>(std::clamp<long>(processors - busy_threads, 1, usable_cores()));
}

}  // namespace normscope
