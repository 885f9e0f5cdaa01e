#pragma once

#include <openreg.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "distributed/CollectiveEngine.h"
#include "distributed/GroupState.h"
#include "distributed/WorkOCCL.h"

namespace c10d::openreg {

// The name of a collective in profiles, such as "occl:all_reduce".
const char* name_of(OpType type);

// One call of torch.distributed. Only a coalesced call can have several chains.
struct CollectiveCall {
  std::shared_ptr<GroupState> group;
  OpType type;
  uint64_t sequence;
  std::shared_ptr<WorkState> state;
  std::atomic<size_t> running;  // chains that are not done
  std::mutex mutex{};           // guards `failure`, and `source` and `started` in `state`
  std::exception_ptr failure{}; // of the first request that failed
  bool replayed = false;        // by a graph: a failure is a failure of the stream of the replay
  TimeoutExtension::Time owned_extension{0};

  // Called when a request is done. `exception` says why the request failed. Null: the request has succeeded.
  void note(const CollectiveRequest& request, const std::exception_ptr& exception);

  // The exception that the user gets for the failure of an engine.
  std::exception_ptr explain(const CollectiveRequest& request, const std::exception_ptr& exception) const;
  std::exception_ptr describe(const CollectiveRequest& request, const char* error, bool timed_out) const;

  // Called when a chain is done. `completion` is the deferred item of the chain's stream. After the last chain of the
  // call, completes the work and the futures.
  void finish(orCompletion_t completion);
};

// The requests of a call that run one after the other: one deferred item of a communication stream (orLaunchDeferred).
struct RequestChain {
  std::shared_ptr<CollectiveCall> call;
  std::vector<std::shared_ptr<CollectiveRequest>> requests;
  orCompletion_t completion = nullptr;

  // An orKernel's `operands`: all tensors of all requests.
  static void visit(void* data, orOperandFn_t visit, void* context);

  // Queues a chain on the stream.
  static void launch(
      orStream_t stream,
      std::shared_ptr<CollectiveCall> call,
      std::vector<std::shared_ptr<CollectiveRequest>> requests);

  // An orDeferredFn_t: starts the first request. `data` is a RequestChain, which begin() owns from now on.
  static void begin(void* data, orCompletion_t completion);

 private:
  // Starts request number `index`. When that request is done, the next one is started.
  static void next(const std::shared_ptr<RequestChain>& chain, size_t index);
};

// A chain of a captured call: a node of the graph, which runs the requests again at each replay.
//
// Rule: as each node of a graph, it keeps addresses and no memory. It does not keep the group alive either.
struct CapturedChain {
  std::weak_ptr<GroupState> group;
  OpType type;
  uint64_t sequence; // of the captured call. All replays have it, on all ranks.
  std::vector<CollectiveRequest> requests;

  // Adds the chain to the graph that the stream captures.
  static void launch(
      orStream_t stream, const CollectiveCall& call, const std::vector<std::shared_ptr<CollectiveRequest>>& requests);
};

} // namespace c10d::openreg
