// Ranks that are threads of one process: what several of them compute, tested without MPI.
#pragma once

#include <algorithm>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "dist/communicator.h"

namespace normscope::testing {

class RanksInThreads {
 public:
  explicit RanksInThreads(int size) : barrier_(size), shown_(static_cast<std::size_t>(size)) {}

  // Calls body(communicator) for every rank at once, each of which computes in one thread.
  void run(const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(shown_.size()); ++r) {
      threads.emplace_back([&, r] {
        set_thread_count(1);
        Rank rank(*this, r);
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Rank : public Communicator {
   public:
    Rank(RanksInThreads& all, int rank) : all_(all) {
      rank_ = rank;
      size_ = static_cast<int>(all.shown_.size());
    }
    using Communicator::complete;
    void complete(void* items, Index bytes_per_item, std::span<const Index> cut) override {
      meet(items, [&](std::size_t other, const char* theirs) {
        const Index begin = cut[other] * bytes_per_item, end = cut[other + 1] * bytes_per_item;
        if (static_cast<int>(other) != rank_)
          std::copy(theirs + begin, theirs + end, static_cast<char*>(items) + begin);
      });
    }
    void exchange(const float* block, std::span<const Index> cut, std::span<const Index> place,
                  float* parts) override {
      const auto r = static_cast<std::size_t>(rank_);
      meet(block, [&](std::size_t other, const char* bytes) {
        const auto* theirs = reinterpret_cast<const float*>(bytes);
        if (place[other] >= 0)
          std::copy(theirs + cut[r] * floats_per_line, theirs + cut[r + 1] * floats_per_line,
                    parts + place[other] * floats_per_line);
      });
    }

   private:
    // All show a pointer, then each takes what it needs of all.
    template <class Take>
    void meet(const void* mine, Take take) {
      all_.shown_[static_cast<std::size_t>(rank_)] = static_cast<const char*>(mine);
      all_.barrier_.arrive_and_wait();
      for (std::size_t other = 0; other < all_.shown_.size(); ++other) take(other, all_.shown_[other]);
      all_.barrier_.arrive_and_wait();
    }
    RanksInThreads& all_;
  };

  std::barrier<> barrier_;
  std::vector<const char*> shown_;
};

}  // namespace normscope::testing
