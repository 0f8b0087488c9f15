// The thread count of a run without --threads or train.threads: the fastest now, found by trial during the
// run. The bits do not depend on it.
//
// A trial compares the count in use with half or twice that count, two steps each by turns, because beside
// busy programs the time of single steps varies by half. The other count is chosen if all its steps took less
// time; a trial ends early if they take much more, and takes longer before a change. Trials take place at the
// start, periodically, and when the time of steps changes; the pauses between trials that ended early grow
// from 250 steps to 2000.
#pragma once

#include "core/types.h"

namespace normscope {

class ThreadChoice {
 public:
  // At most `most` threads, starting with thread_count(). 0: no trials.
  explicit ThreadChoice(int most);
  ~ThreadChoice();  // sets the chosen count

  // Call after each step with its time. Sets the thread count of the next step. True: the choice changed.
  bool choose(double seconds);
  int chosen() const { return chosen_; }

 private:
  void start_trial();
  bool judge();

  int most_, chosen_;
  int other_ = 0;  // compared with the chosen count; 0: no trial
  bool try_fewer_ = true, try_more_ = true;
  Index steps_;                    // in this trial, or since the last one
  Index pause_;                    // steps until the next trial, if their time does not change
  double seconds_[2] = {};         // of this trial's steps with chosen_, with other_
  double usual_ = 0, recent_ = 0;  // seconds a step: in the first steps after a trial, smoothed since
};

}  // namespace normscope
