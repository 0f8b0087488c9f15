#include "core/parallel.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "core/processors.h"

namespace normscope {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::uint32_t;

// One loop is open at a time. What a helper needs to begin is in one cache line, because each line comes late
// from another core. Of the word the low bits are the loop's thread count, 0: it is closed; the middle ones the
// number of helpers inside; the high ones the number of the loop.
constexpr Word one_inside = 1 << 11, is_for = one_inside - 1, one_loop = 1 << 22;
struct alignas(64) {
  std::atomic<Word> word = 0;
  void (*run)(void*, int) = nullptr;
  void* context = nullptr;
} loop;

// Each helper sleeps on its own word, so that a loop for few threads wakes no others.
struct alignas(64) Helper {
  std::atomic<int> asleep = 0;
};

int threads = 0;  // 0: not set yet
int started = 0;  // helpers, threads 1 to `started`
Helper helpers[is_for];
std::atomic_flag has_failed;
std::exception_ptr failure;
std::atomic<bool> may_spin = false;  // every thread has a core
thread_local bool in_loop = false;

// Whether done() becomes true within the time. Reading the clock is pause enough between two calls.
template <class Done>
bool spin_until(Done done, Clock::time_point since, Clock::duration limit) {
  do {
    if (done()) return true;
  } while (may_spin.load(std::memory_order_relaxed) && Clock::now() - since < limit);
  return done();
}

void run_share(int thread) {
  try {
    loop.run(loop.context, thread);
  } catch (...) {
    if (!has_failed.test_and_set()) failure = std::current_exception();
  }
}

bool enter(int thread) {
  Word word = loop.word.load();
  while (thread < static_cast<int>(word & is_for))
    if (loop.word.compare_exchange_weak(word, word + one_inside)) return true;
  return false;
}

// The endless loop of a helper: spins for a parallel loop to enter, for longer than training takes from one
// to the next, then sleeps.
void help(int thread, Word seen) {
  constexpr auto spin = std::chrono::microseconds(100);
  in_loop = true;
  Helper& self = helpers[thread];
  const auto is_new = [&] { return loop.word.load() / one_loop != seen; };
  for (Clock::time_point idle_since = Clock::now();;) {
    if (!spin_until(is_new, idle_since, spin)) {
      self.asleep = 1;
      if (!is_new()) self.asleep.wait(1);
      self.asleep = 0;
      idle_since = Clock::now();
    }
    seen = loop.word.load() / one_loop;
    if (!enter(thread)) continue;
    run_share(thread);
    const Word before = loop.word.fetch_sub(one_inside);
    if (before % one_loop == one_inside) loop.word.notify_one();  // the last out of a closed loop
    idle_since = Clock::now();
  }
}

// A helper is never stopped: it ends with the program.
bool start_helper() {
  try {
    std::thread(help, started + 1, loop.word.load() / one_loop).detach();
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
  loop.run = run;
  loop.context = context;
  loop.word = (loop.word.load() / one_loop + 1) * one_loop + static_cast<Word>(wanted);
  for (int thread = 1; thread < wanted && thread <= started; ++thread) {
    std::atomic<int>& asleep = helpers[thread].asleep;
    if (asleep.load() == 1 && asleep.exchange(0) == 1) asleep.notify_one();
  }
  in_loop = true;
  run_share(0);
  in_loop = false;

  const auto all_left = [] { return loop.word.load() % one_loop == 0; };
  loop.word &= ~is_for;
  if (!spin_until(all_left, Clock::now(), spin))
    for (Word word; (word = loop.word.load()) % one_loop != 0;) loop.word.wait(word);
  if (!has_failed.test()) return;
  has_failed.clear();
  std::rethrow_exception(std::exchange(failure, nullptr));
}

}  // namespace normscope
