#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "distributed/CollectiveEngine.h"
#include "distributed/CommunicationStreams.h"
#include "distributed/CompletionHook.h"
#include "distributed/WorkOCCL.h"

namespace c10d::openreg {

// What addEphemeralTimeout() adds to timeouts, as in ProcessGroupNCCL: the calls that follow get all the time that is
// added, until the first of them is complete.
class TimeoutExtension final {
 public:
  using Time = std::chrono::milliseconds;

  void add(Time time) {
    const std::lock_guard lock(mutex_);
    added_ += time;
  }
  // Called for each call of the group. Returns the time that the call gets, and how much of it ends with the call.
  std::pair<Time, Time> begin_call() {
    const std::lock_guard lock(mutex_);
    return {added_, added_ - std::exchange(owned_, added_)};
  }
  void end_call(Time owned) {
    const std::lock_guard lock(mutex_);
    added_ -= owned;
    owned_ -= owned;
  }

 private:
  std::mutex mutex_;
  Time added_{0};
  Time owned_{0}; // by calls that are not complete
};

// What a group and its running collectives share. The program may drop the group while a collective runs: the
// collective keeps this state.
struct GroupState {
  GroupState(int rank, std::shared_ptr<CollectiveEngine> engine) : rank(rank), engine(std::move(engine)) {}

  const int rank;
  const std::shared_ptr<CollectiveEngine> engine;
  std::atomic<ErrorType> error{ErrorType::SUCCESS};
  CompletionHook hook;
  CommunicationStreams streams;
  TimeoutExtension extension;

  // Where the collectives that run from now on note the failures which streams raise.
  std::shared_ptr<RaisedFailures> raised() {
    const std::lock_guard lock(mutex_);
    return raised_;
  }
  // Gives later collectives another object, and returns the one before.
  std::shared_ptr<RaisedFailures> exchange_raised() {
    const std::lock_guard lock(mutex_);
    return std::exchange(raised_, std::make_shared<RaisedFailures>());
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<RaisedFailures> raised_ = std::make_shared<RaisedFailures>();
};

} // namespace c10d::openreg
