#include "core/parallel.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>

#include "core/processors.h"

namespace normscope {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::uint32_t;

// One loop is open at a time. Low half of the word: the loop's thread count, 0: it is closed. High half: the
// number of helpers inside.
constexpr Word one_inside = 1 << 16, is_for = one_inside - 1;

struct Loop {
  void (*run)(void*, int);
  void* context;
  std::atomic_flag has_failed{};
  std::exception_ptr failure{};
};

// Each helper sleeps on its own word, so that a loop for few threads wakes no others.
struct alignas(64) Helper {
  std::atomic<int> asleep = 0;
};

int threads = 0;  // 0: not set yet
int started = 0;  // helpers, threads 1 to `started`
Loop* open_loop = nullptr;
Helper helpers[is_for];
alignas(64) std::atomic<Word> state = 0;
alignas(64) std::atomic<Word> loops = 0;  // opened so far
std::atomic<bool> may_spin = false;       // every thread has a core
thread_local bool in_loop = false;

// Whether done() becomes true within the time. Reading the clock is pause enough between two calls.
template <class Done>
bool spin_until(Done done, Clock::time_point since, Clock::duration limit) {
  do {
    if (done()) return true;
  } while (may_spin.load(std::memory_order_relaxed) && Clock::now() - since < limit);
  return done();
}

void run_share(Loop& loop, int thread) {
  try {
    loop.run(loop.context, thread);
  } catch (...) {
    if (!loop.has_failed.test_and_set()) loop.failure = std::current_exception();
  }
}

bool enter(int thread) {
  Word word = state.load();
  while (thread < static_cast<int>(word & is_for))
    if (state.compare_exchange_weak(word, word + one_inside)) return true;
  return false;
}

// The endless loop of a helper: spins for a parallel loop to enter, for longer than training takes from one
// to the next, then sleeps.
void help(int thread, Word seen) {
  constexpr auto spin = std::chrono::microseconds(100);
  in_loop = true;
  Helper& self = helpers[thread];
  const auto is_new = [&] { return loops.load() != seen; };
  for (Clock::time_point idle_since = Clock::now();;) {
    if (!spin_until(is_new, idle_since, spin)) {
      self.asleep = 1;
      if (!is_new()) self.asleep.wait(1);
      self.asleep = 0;
      idle_since = Clock::now();
    }
    seen = loops.load();
    if (!enter(thread)) continue;
    run_share(*open_loop, thread);
    if (state.fetch_sub(one_inside) == one_inside) state.notify_one();  // the last out of a closed loop
    idle_since = Clock::now();
  }
}

// A helper is never stopped: it ends with the program.
bool start_helper() {
  try {
    std::thread(help, started + 1, loops.load()).detach();
  } catch (const std::system_error&) {
    set_thread_count(started + 1);
    return false;
  }
  ++started;
  return true;
}

}  // namespace

void set_thread_count(int count) {
  threads = count > 0 ? std::min(count, static_cast<int>(is_for)) : usable_cores();
  may_spin = threads <= usable_cores();
}

int thread_count() {
  if (threads == 0) set_thread_count(0);
  return threads;
}

bool in_parallel_loop() { return in_loop; }

void run_in_threads(int wanted, void (*run)(void*, int), void* context) {
  constexpr auto spin = std::chrono::microseconds(300);
  while (started < wanted - 1 && start_helper()) {
  }
  Loop loop{run, context};
  open_loop = &loop;
  state = static_cast<Word>(wanted);
  ++loops;
  for (int thread = 1; thread < wanted && thread <= started; ++thread) {
    std::atomic<int>& asleep = helpers[thread].asleep;
    if (asleep.load() == 1 && asleep.exchange(0) == 1) asleep.notify_one();
  }
  in_loop = true;
  run_share(loop, 0);
  in_loop = false;

  state &= ~is_for;
  if (!spin_until([] { return state.load() == 0; }, Clock::now(), spin))
    for (Word word; (word = state.load()) != 0;) state.wait(word);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace normscope
