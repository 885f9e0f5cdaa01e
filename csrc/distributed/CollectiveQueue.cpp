#include "distributed/CollectiveQueue.h"

#include <ATen/record_function.h>
#include <occl_transport.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "distributed/CollectiveCall.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegGraphsC10Utils.h"

namespace c10d::openreg {

CollectiveQueue::CollectiveQueue(c10::intrusive_ptr<GroupOptions> options, std::shared_ptr<GroupState> group)
    : options_(std::move(options)), group_(std::move(group)) {}

std::shared_ptr<CollectiveRequest> CollectiveQueue::make_request(
    Verb verb, OpType type, const at::Tensor& example, std::chrono::milliseconds timeout) {
  auto request = std::make_shared<CollectiveRequest>();
  request->verb = verb;
  request->type = type;
  request->timeout = timeout == kUnsetTimeout ? options_->timeout : timeout;
  if (example.defined()) {
    request->shape = example.sizes().vec();
    request->dtype = example.scalar_type();
  }
  return request;
}

c10::intrusive_ptr<Work> CollectiveQueue::submit(
    const StreamKey& key,
    c10::Device device,
    std::shared_ptr<CollectiveRequest> request,
    std::vector<at::Tensor> outputs) {
  c10::openreg::check_not_forked();
  request->sequence = key == StreamKey{} ? ++sequence_ : ++peer_sequences_[key];
  request->device = device.index();
  const auto [place, is_new] = places_.try_emplace(device.index());
  if (is_new) {
    place->second = occl::placeOf(device.index());
  }
  request->place = place->second;
  group_->engine->prepare(*request);
  if (coalescing_) {
    TORCH_CHECK(
        !coalesced_device_ || *coalesced_device_ == device, "All tensors of a coalesced call must be on one device");
    coalesced_device_ = device;
    coalesced_[key].push_back(std::move(request));
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
    return nullptr;
  }
  const OpType type = request->type;
  const uint64_t sequence = request->sequence;
  Chains chains;
  chains[key].push_back(std::move(request));
  return enqueue(type, device, sequence, std::move(chains), std::move(outputs));
}

// Gives the requests of a call the time that was added to timeouts. Not in a capture, whose calls run at each replay.
// Returns the longest timeout.
std::chrono::milliseconds CollectiveQueue::extend_timeouts(CollectiveCall& call, const Chains& chains) {
  std::chrono::milliseconds added{0};
  if (!call.state->captured) {
    std::tie(added, call.owned_extension) = group_->extension.begin_call();
  }
  std::chrono::milliseconds longest{0};
  for (const auto& [key, requests] : chains) {
    for (const auto& request : requests) {
      request->timeout += added;
      longest = std::max(longest, request->timeout);
    }
  }
  return longest;
}

// Queues the chains of a call on their communication streams. No other function brings collectives to the device.
c10::intrusive_ptr<Work> CollectiveQueue::enqueue(
    OpType type, c10::Device device, uint64_t sequence, Chains chains, std::vector<at::Tensor> outputs) {
  RECORD_FUNCTION(name_of(type), c10::ArrayRef<const c10::IValue>{});
  auto state = std::make_shared<WorkState>();
  const auto caller = c10::openreg::getCurrentOpenRegStream(device.index());
  state->caller = caller.stream();
  state->captured = c10::openreg::capture_of(caller) != 0;
  state->host_waits = c10::openreg::executes_inline() && !group_->engine->completes_at_once();
  state->raised = group_->raised();
  const auto call = std::make_shared<CollectiveCall>(group_, type, sequence, state, chains.size());
  const c10::openreg::CurrentDevice current(device.index());
  orEvent_t event = nullptr;
  OPENREG_CHECK(orEventCreate(&event));
  auto work = c10::make_intrusive<WorkOCCL>(
      group_->rank,
      type,
      device,
      sequence,
      std::move(outputs),
      std::move(state),
      event,
      type == OpType::BARRIER,
      extend_timeouts(*call, chains));
  // Each chain has the stream of its key. So messages to one rank, or from one rank, keep the order of the calls,
  // whether they are coalesced or not.
  const orStream_t joined = chains.size() == 1 ? nullptr : stream({StreamKey::Kind::coalesced}, device);
  for (auto& [key, requests] : chains) {
    const orStream_t comm = stream(key, device);
    call->state->stream = joined != nullptr ? joined : comm;
    c10::openreg::order_after_current_stream(comm, device.index());
    if (call->state->captured) {
      CapturedChain::launch(comm, *call, requests);
      auto& operands = call->state->operands;
      operands.insert(operands.end(), requests.begin(), requests.end());
    } else {
      RequestChain::launch(comm, call, std::move(requests));
    }
    OPENREG_CHECK(orEventRecord(event, comm));
    if (joined != nullptr) {
      OPENREG_CHECK(orStreamWaitEvent(joined, event, 0));
    }
  }
  if (joined != nullptr) {
    OPENREG_CHECK(orEventRecord(event, joined));
  }
  return work;
}

c10::intrusive_ptr<Work> CollectiveQueue::end_coalescing() {
  coalescing_ = false;
  Chains chains = std::exchange(coalesced_, {});
  std::vector<at::Tensor> outputs = std::exchange(coalesced_outputs_, {});
  const std::optional<c10::Device> device = std::exchange(coalesced_device_, std::nullopt);
  return device ? enqueue(OpType::COALESCED, *device, sequence_, std::move(chains), std::move(outputs)) : nullptr;
}

c10::intrusive_ptr<Work> CollectiveQueue::coalesced(const std::function<void()>& calls) {
  const bool within = coalescing_;
  coalescing_ = true;
  try {
    calls();
  } catch (...) {
    coalescing_ = within;
    if (!within) {
      end_coalescing();
    }
    throw;
  }
  return within ? nullptr : end_coalescing();
}

std::vector<std::exception_ptr> CollectiveQueue::end_raising() {
  return group_->exchange_raised()->end();
}

orStream_t CollectiveQueue::stream(const StreamKey& key, c10::Device device) {
  return group_->streams.get(key, device, options_->is_high_priority_stream);
}

} // namespace c10d::openreg
