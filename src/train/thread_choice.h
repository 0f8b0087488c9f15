// How many threads a run takes where nobody says so: what is faster on this machine now, found by trial while
// the run goes on. The bits do not depend on it.
//
// A trial compares the count in use with half or twice as many: two steps each in turn. It ends with the
// first turn in which the other is not faster, and the other is chosen when it was faster in all: beside busy
// programs single steps vary by half. Trials come at the start, now and then, and when steps take another
// time than usual; one costs an idle machine of two cores about two steps' time in 250.
#pragma once

#include "core/types.h"

namespace normscope {

class ThreadChoice {
 public:
  // Up to `most` threads, beginning with thread_count(). 0: nothing is chosen.
  explicit ThreadChoice(int most);
  ~ThreadChoice();  // leaves the chosen count

  // After each step, which took so many seconds: sets the thread count of the next. True: another is chosen.
  bool choose(double seconds);
  int chosen() const { return chosen_; }

 private:
  bool is_trial_due() const;
  void start_trial();
  bool judge();

  int most_, chosen_;
  int other_ = 0;  // tried beside the chosen one; 0: no trial
  bool try_fewer_ = true, try_more_ = true;
  Index steps_ = 0;                // of this trial, or since the last one
  double seconds_[2] = {};         // of this turn's steps with chosen_, with other_
  double usual_ = 0, recent_ = 0;  // seconds a step: in the first steps after a trial, smoothed since
};

}  // namespace normscope
