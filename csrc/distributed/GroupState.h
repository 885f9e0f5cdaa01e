#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <utility>

#include "distributed/CommunicationStreams.h"
#include "distributed/CompletionHook.h"
#include "distributed/Engines.h"

namespace c10d::openreg {

// What a group and its running collectives share. The program may drop the group while a collective runs: the
// collective keeps this state.
struct GroupState {
  GroupState(int rank, Engines engines) : rank(rank), engines(std::move(engines)) {}

  const int rank;
  Engines engines;
  std::atomic<ErrorType> error{ErrorType::SUCCESS};
  CompletionHook hook;
  CommunicationStreams streams;
};

} // namespace c10d::openreg
