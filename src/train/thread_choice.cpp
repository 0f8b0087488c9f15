#include "train/thread_choice.h"

#include <algorithm>
#include <utility>

#include "core/parallel.h"

namespace normscope {
namespace {

constexpr Index steps_a_turn = 2, steps_before_first = 2;
constexpr Index turns = 4, turns_to_change = 6;  // of a trial; where the other count is faster
constexpr Index min_pause = 250, max_pause = 2000, steps_of_usual = 32;
constexpr double worth_it = 1.08;    // the speedup that the other count must reach in a trial
constexpr double hopeless = 1.4;     // the slowdown that ends one early
constexpr double other_pace = 1.25;  // the change of step time, up or down, that starts a trial

}  // namespace

ThreadChoice::ThreadChoice(int most)
    : most_(most), chosen_(thread_count()), steps_(min_pause - steps_before_first), pause_(min_pause) {}

ThreadChoice::~ThreadChoice() {
  if (other_ != 0) set_thread_count(chosen_);
}

// Starts a trial of the next count, or without one the steps until the next trial.
void ThreadChoice::start_trial() {
  other_ = 0;
  if (std::exchange(try_fewer_, false) && chosen_ > 1) {
    other_ = (chosen_ + 1) / 2;
  } else if (std::exchange(try_more_, false) && chosen_ < most_) {
    other_ = std::min(most_, 2 * chosen_);
  } else {
    try_fewer_ = try_more_ = true;
  }
  steps_ = 0;
  usual_ = seconds_[0] = seconds_[1] = 0;
}

bool ThreadChoice::choose(double seconds) {
  if (most_ <= 1) return false;
  ++steps_;
  if (other_ == 0) {
    if (steps_ <= steps_of_usual) {
      recent_ = usual_ += seconds / steps_of_usual;
    } else {
      recent_ += (seconds - recent_) / 16;
    }
    const double pace = steps_ > steps_of_usual && usual_ > 0 ? recent_ / usual_ : 1;
    if (steps_ >= pause_ || pace > other_pace || pace < 1 / other_pace) start_trial();
    return false;
  }
  const bool is_others = (steps_ - 1) / steps_a_turn % 2 == 1;
  seconds_[is_others] += seconds;
  const bool was_chosen = steps_ % (2 * steps_a_turn) == 0 && judge();
  set_thread_count(other_ != 0 && steps_ / steps_a_turn % 2 == 1 ? other_ : chosen_);
  return was_chosen;
}

// Ends a turn. True: the other count is chosen, and trials continue in its direction.
bool ThreadChoice::judge() {
  const bool is_hopeless = seconds_[1] >= hopeless * seconds_[0];
  const Index wanted = seconds_[1] < seconds_[0] ? turns_to_change : turns;
  if (!is_hopeless && steps_ < wanted * 2 * steps_a_turn) return false;
  // If the other count is far slower, only another load can change that, and the time of steps will show it.
  pause_ = is_hopeless ? std::min(2 * pause_, max_pause) : min_pause;
  const bool is_faster = seconds_[0] > worth_it * seconds_[1];
  if (is_faster) {
    try_fewer_ = other_ < chosen_;
    try_more_ = other_ > chosen_;
    chosen_ = other_;
  }
  start_trial();
  return is_faster;
}

}  // namespace normscope
