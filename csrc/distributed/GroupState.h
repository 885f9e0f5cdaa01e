#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <utility>

#include "distributed/CommunicationStreams.h"
#include "distributed/CompletionHook.h"
#include "distributed/Engine.h"

namespace c10d::openreg {

// What a group and its running collectives share. The program may drop the group while a collective runs: the
// collective keeps this state.
struct GroupState {
  GroupState(int rank, std::shared_ptr<Engine> engine) : rank(rank), engine(std::move(engine)) {}

  const int rank;
  const std::shared_ptr<Engine> engine;
  std::atomic<ErrorType> error{ErrorType::SUCCESS};
  CompletionHook hook;
  CommunicationStreams streams;
};

} // namespace c10d::openreg
