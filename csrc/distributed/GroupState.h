#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <utility>

#include "distributed/CollectiveEngine.h"
#include "distributed/CommunicationStreams.h"
#include "distributed/CompletionHook.h"

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
};

} // namespace c10d::openreg
