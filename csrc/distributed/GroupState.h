#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "distributed/CollectiveEngine.h"
#include "distributed/CommunicationStreams.h"
#include "distributed/CompletionHook.h"
#include "distributed/WorkOCCL.h"

namespace c10d::openreg {

// What a group and its running collectives share. The program may drop the group while a collective runs: the
// collective keeps this state.
struct GroupState {
  GroupState(int rank, std::shared_ptr<CollectiveEngine> engine) : rank(rank), engine(std::move(engine)) {}

  const int rank;
  const std::shared_ptr<CollectiveEngine> engine;
  std::atomic<ErrorType> error{ErrorType::SUCCESS};
  CompletionHook hook;
  CommunicationStreams streams;

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
