#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "distributed/CollectiveEngine.h"
#include "distributed/GroupOptions.h"
#include "distributed/GroupState.h"

namespace c10d::openreg {

struct CollectiveCall;

// Brings the requests of a group to its communication streams, in the order of the calls.
class CollectiveQueue final {
 public:
  CollectiveQueue(c10::intrusive_ptr<GroupOptions> options, std::shared_ptr<GroupState> group);

  // `example`: a tensor of the user. Its dtype is compared between the ranks. Its shape is only for error messages. For
  // a barrier it is undefined.
  std::shared_ptr<CollectiveRequest> make_request(
      Verb verb, OpType type, const at::Tensor& example, std::chrono::milliseconds timeout);

  // Queues the request on the stream of the key, which is {} for a collective. Between start_coalescing() and
  // end_coalescing(), keeps it and returns null. `outputs`: the user's tensors, which are the results of the Work.
  c10::intrusive_ptr<Work> submit(
      const StreamKey& key,
      c10::Device device,
      std::shared_ptr<CollectiveRequest> request,
      std::vector<at::Tensor> outputs);

  void start_coalescing() {
    coalescing_ = true;
  }
  // Queues the requests that were submitted since start_coalescing(). Returns null if there are none.
  c10::intrusive_ptr<Work> end_coalescing();
  // Coalesces what `calls` submits. Within a coalesced call, returns null, because the requests are part of that call.
  c10::intrusive_ptr<Work> coalesced(const std::function<void()>& calls);

  // The number of the last collective.
  uint64_t sequence() const {
    return sequence_;
  }
  // From now on no stream raises a failure of the collectives that were called before. Failures of later collectives
  // are raised, because a program that uses an aborted group must get an error. Returns the failures that streams would
  // have raised, and that no call has reported yet.
  std::vector<std::exception_ptr> end_raising();

 private:
  // A chain is a list of requests that run one after the other. Each chain has a key, which is the key of its stream.
  // The chains of one call run at the same time.
  using Chains = std::map<StreamKey, std::vector<std::shared_ptr<CollectiveRequest>>>;

  c10::intrusive_ptr<Work> enqueue(
      OpType type, c10::Device device, uint64_t sequence, Chains chains, std::vector<at::Tensor> outputs);
  std::chrono::milliseconds extend_timeouts(CollectiveCall& call, const Chains& chains);
  orStream_t stream(const StreamKey& key, c10::Device device);

  const c10::intrusive_ptr<GroupOptions> options_;
  const std::shared_ptr<GroupState> group_;
  std::map<StreamKey, uint64_t> peer_sequences_;
  uint64_t sequence_ = 0;
  std::map<c10::DeviceIndex, occl::RankPlace> places_;

  bool coalescing_ = false;
  Chains coalesced_;
  std::vector<at::Tensor> coalesced_outputs_;
  std::optional<c10::Device> coalesced_device_;
};

} // namespace c10d::openreg
