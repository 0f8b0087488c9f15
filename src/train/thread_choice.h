// The thread count of a run that sets none, by trial: no bit depends on it, but beside busy programs fewer
// threads are faster.
//
// A trial compares the count in use with half or twice as many, two steps each by turns, and keeps the
// faster. It takes place at the start, every 250 steps, and when the time of steps changes by a quarter.
#pragma once

#include <cmath>

#include "core/parallel.h"

namespace normscope {

class ThreadChoice {
 public:
  explicit ThreadChoice(int most) : most_(most) {}
  ~ThreadChoice() { set_thread_count(chosen_); }

  // Sets the thread count of the next step from the seconds of the last one.
  void after_step(double seconds) {
    ++steps_;
    if (other_ == 0) return consider_trial(seconds);
    seconds_[(steps_ - 1) / 2 % 2] += seconds;
    if (steps_ % 4 == 0) judge(seconds_[1] / seconds_[0]);
    set_thread_count(other_ != 0 && steps_ / 2 % 2 == 1 ? other_ : chosen_);
  }

 private:
  void consider_trial(double seconds) {
    recent_ += (seconds - recent_) / std::min(steps_, 16);
    if (steps_ <= 16) usual_ = recent_;
    if (steps_ < pause_ && std::abs(recent_ - usual_) <= usual_ / 4) return;
    fewer_ = chosen_ == most_ || (fewer_ && chosen_ > 1);
    other_ = fewer_ ? (chosen_ + 1) / 2 : std::min(most_, 2 * chosen_);
    seconds_[0] = seconds_[1] = steps_ = 0;
  }
  // Ends the trial after eight steps each, or earlier if one count is far slower.
  void judge(double time_of_other) {
    if (steps_ < 16 && time_of_other > 0.7 && time_of_other < 1.4) return;
    const bool better = time_of_other < 0.95;
    better ? chosen_ = other_ : fewer_ = !fewer_;
    pause_ = better ? 16 : 250;
    steps_ = other_ = 0;
  }

  int most_, chosen_ = most_, other_ = 0;  // other_: the count on trial; 0: none
  int steps_ = 0, pause_ = 2;              // steps of this trial, or since the last one; of a pause
  bool fewer_ = true;                      // the direction of the next trial
  double seconds_[2] = {};                 // this trial's, with chosen_ and with other_
  double usual_ = 0, recent_ = 0;          // seconds a step: just after the last trial, now
};

}  // namespace normscope
