// The thread count, found by trial, of a run of one process that sets none. No bit depends on it, but while other programs
// are busy fewer threads are faster.
//
// A trial compares the count in use with another, two steps each in turn, and changes to it if it takes
// less than 0.95 of the time. The other is half the count in use, or twice as many; a trial that keeps its
// count turns the direction round. The first trial begins after 2 steps. The next one begins 250 steps after
// a trial that kept its count, and 16 steps after one that changed it. It begins earlier, but not within 16
// steps, if the time of a step has changed by a quarter.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/parallel.h"

namespace normscope {

class ThreadChoice {
 public:
  explicit ThreadChoice(int most) : most_(most) {}
  ~ThreadChoice() { set_thread_count(chosen_); }

  // Sets the thread count of the next step from the seconds of the last one.
  void after_step(double seconds) {
    if (is_trying_) {
      continue_trial(seconds);
    } else {
      begin_trial_if_due(seconds);
    }
    set_thread_count(is_trying_ && trial_.is_turn_of_other() ? trial_.other : chosen_);
  }

 private:
  static constexpr int first_pause = 2, pause_after_change = 16, pause_after_none = 250;  // steps
  static constexpr int steps_to_average = 16, trial_steps = 16;
  static constexpr double changed_time = 0.25;                 // of a step, relative: begins a trial
  static constexpr double far_faster = 0.7, far_slower = 1.4;  // ends a trial early
  static constexpr double faster = 0.95;                       // changes the count

  struct Trial {
    int other = 0;  // the count on trial
    int steps = 0;
    double seconds_of_chosen = 0, seconds_of_other = 0;

    bool is_turn_of_other() const { return steps / 2 % 2 == 1; }
  };

  // Between trials: a trial is due after the pause, or if steps take another time than after the last trial.
  void begin_trial_if_due(double seconds) {
    ++steps_;
    recent_ += (seconds - recent_) / std::min(steps_, steps_to_average);
    if (steps_ <= steps_to_average) usual_ = recent_;
    if (steps_ < pause_ && std::abs(recent_ - usual_) <= changed_time * usual_) return;
    tries_fewer_ = chosen_ == most_ || (tries_fewer_ && chosen_ > 1);
    trial_ = {.other = tries_fewer_ ? (chosen_ + 1) / 2 : std::min(most_, 2 * chosen_)};
    is_trying_ = true;
  }

  void continue_trial(double seconds) {
    if (trial_.is_turn_of_other()) {
      trial_.seconds_of_other += seconds;
    } else {
      trial_.seconds_of_chosen += seconds;
    }
    if (++trial_.steps % 4 != 0) return;  // both have had equally many
    const double time_of_other = trial_.seconds_of_other / trial_.seconds_of_chosen;
    if (trial_.steps < trial_steps && time_of_other > far_faster && time_of_other < far_slower) return;
    if (time_of_other < faster) {
      chosen_ = trial_.other;
      pause_ = pause_after_change;
    } else {
      tries_fewer_ = !tries_fewer_;  // the other direction next time
      pause_ = pause_after_none;
    }
    is_trying_ = false;
    steps_ = 0;
  }

  int most_, chosen_ = most_;
  bool is_trying_ = false;
  Trial trial_;
  int steps_ = 0, pause_ = first_pause;  // since the last trial; until the next one
  bool tries_fewer_ = true;
  double usual_ = 0, recent_ = 0;  // seconds a step: just after the last trial, now
};

}  // namespace normscope
