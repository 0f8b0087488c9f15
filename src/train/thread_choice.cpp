#include "train/thread_choice.h"

#include <algorithm>
#include <utility>

#include "core/parallel.h"

namespace normscope {
namespace {

constexpr Index steps_a_turn = 2, turns = 6, steps_before_first = 2;
constexpr Index steps_between = 250, steps_between_at_least = 32;
constexpr double clearly = 1.3;      // so many times as fast ends a trial
constexpr double worth_it = 1.05;    // so many times as fast is chosen
constexpr double other_pace = 1.25;  // of steps, up or down: the machine's load is another one

}  // namespace

ThreadChoice::ThreadChoice(int most)
    : most_(most), chosen_(thread_count()), steps_(steps_between - steps_before_first) {}

ThreadChoice::~ThreadChoice() {
  if (other_ != 0) set_thread_count(chosen_);
}

bool ThreadChoice::is_trial_due() const {
  const double pace = recent_ / usual_;
  return steps_ >= steps_between ||
         (steps_ >= steps_between_at_least && (pace > other_pace || pace < 1 / other_pace));
}

// With the next count that is worth a trial; if none is left, the steps until the next trial begin.
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
  seconds_[0] = seconds_[1] = 0;
}

bool ThreadChoice::choose(double seconds) {
  if (most_ <= 1) return false;
  ++steps_;
  if (other_ == 0) {
    recent_ += (seconds - recent_) / 16;
    if (is_trial_due()) start_trial();
    return false;
  }
  const bool is_others = (steps_ - 1) / steps_a_turn % 2 == 1;
  seconds_[is_others] += seconds;
  const bool was_chosen = steps_ % (2 * steps_a_turn) == 0 && judge(seconds_[0] / seconds_[1]);
  set_thread_count(other_ != 0 && steps_ / steps_a_turn % 2 == 1 ? other_ : chosen_);
  return was_chosen;
}

// After a turn of both. True: the other is chosen, and trials go on in its direction.
bool ThreadChoice::judge(double times_as_fast) {
  const bool is_clear = times_as_fast > clearly || times_as_fast < 1 / clearly;
  if (!is_clear && steps_ < turns * steps_a_turn) return false;
  const bool is_better = times_as_fast > worth_it;
  usual_ = recent_ = seconds_[is_better] / (0.5 * static_cast<double>(steps_));
  if (is_better) {
    try_fewer_ = other_ < chosen_;
    try_more_ = other_ > chosen_;
    chosen_ = other_;
  }
  start_trial();
  return is_better;
}

}  // namespace normscope
