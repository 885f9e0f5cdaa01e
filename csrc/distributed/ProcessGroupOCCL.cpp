#include "ProcessGroupOCCL.h"

#include <ATen/record_function.h>
#include <openreg_activity.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "CollectiveCall.h"
#include "GlooEngine.h"
#include "Header.h"
#include "SharedEngine.h"

namespace c10d::openreg {
namespace {

std::string_view chosen_transport() {
  const char* value = std::getenv("OCCL_TRANSPORT");
  const std::string_view transport = value == nullptr || *value == '\0' ? "auto" : value; // empty means unset
  TORCH_CHECK_VALUE(
      transport == "auto" || transport == "gloo" || transport == "shm",
      "OCCL_TRANSPORT is '",
      transport,
      "'. Set it to auto (the default), gloo or shm, or unset it.");
  return transport;
}

} // namespace

ProcessGroupOCCL::MakeGloo ProcessGroupOCCL::make_gloo;

// torchrun restarts ranks on the same store, which still has the keys of the ranks that died. So each attempt uses
// keys of its own.
std::string ProcessGroupOCCL::store_prefix() {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return c10::str("occl/", attempt == nullptr ? "0" : attempt);
}

ProcessGroupOCCL::ProcessGroupOCCL(
    c10::intrusive_ptr<Store> store,
    c10::intrusive_ptr<Backend> gloo,
    int rank,
    int size,
    c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(std::move(store)), gloo_(std::move(gloo)), options_(std::move(options)) {
  checks_headers(); // throws if OCCL_CHECK has a bad value
  const std::string_view transport = chosen_transport();
  GlooEngine::Hosts hosts;
  if (transport != "gloo" && size > 1) {
    SharedEngine::Placement placement = SharedEngine::make(*store_, rank, size, options_->timeout);
    const std::vector<int>& leaders = placement.leaders;
    if (leaders.size() == 1) {
      shared_engine_ = placement.engine;
    } else if (placement.engine && leaders.size() < static_cast<size_t>(size)) {
      hosts.own = placement.engine;
      if (const auto own = std::find(leaders.begin(), leaders.end(), rank); own != leaders.end()) {
        hosts.leaders = make_gloo(
            c10::make_intrusive<PrefixStore>("leaders", store_),
            static_cast<int>(own - leaders.begin()),
            static_cast<int>(leaders.size()),
            options_->timeout);
      }
    }
    TORCH_CHECK(
        shared_engine_ || transport == "auto",
        "OCCL_TRANSPORT is 'shm', but the ranks of the group cannot share memory: they run on several hosts, or as "
        "several users. Set it to auto or gloo.");
  }
  engine_ = std::make_shared<GlooEngine>(gloo_, std::move(hosts));
  init();
}

Engine& ProcessGroupOCCL::engine_for(const Request& request) {
  return shared_engine_ && SharedEngine::supports(request.verb) ? *shared_engine_ : *engine_;
}

ProcessGroupOCCL::~ProcessGroupOCCL() {
  for (const auto& [key, stream] : streams_) {
    orStreamDestroy(stream);
  }
}

void ProcessGroupOCCL::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_->setTimeout(timeout);
}

void ProcessGroupOCCL::registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) {
  TORCH_CHECK_WITH(DistBackendError, !hook_, "ProcessGroupOCCL OnCompletion hook already registered");
  hook_.set(std::move(hook));
}

void ProcessGroupOCCL::waitForPendingWorks() {
  std::map<std::string, orStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    OPENREG_CHECK(orStreamSynchronize(stream));
  }
  hook_.wait();
}

// From now on no stream raises a failure of the collectives that were called before. Failures of later collectives are
// raised, because a program that uses an aborted group must get an error.
std::vector<std::exception_ptr> ProcessGroupOCCL::end_raising() {
  std::shared_ptr<RaisedFailures> before = std::make_shared<RaisedFailures>();
  {
    const std::lock_guard lock(mutex_);
    before.swap(raised_);
  }
  return before->end();
}

void ProcessGroupOCCL::abort() {
  end_raising();
  engine_->abort();
  if (shared_engine_) {
    shared_engine_->abort();
  }
}

void ProcessGroupOCCL::shutdown() {
  waitForPendingWorks();
  for (const std::exception_ptr& failure : end_raising()) {
    try {
      std::rethrow_exception(failure);
    } catch (const c10::Error& error) {
      TORCH_WARN(
          "A process group has ended, and the program never waited for a collective that failed: ",
          error.what_without_backtrace());
    }
  }
}

c10::intrusive_ptr<Backend> ProcessGroupOCCL::split(
    const c10::intrusive_ptr<Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<Backend::Options>& options) {
  ++split_count_;
  auto made = c10::make_intrusive<Options>(options ? options->timeout : options_->timeout);
  made->is_high_priority_stream = options_->is_high_priority_stream;
  made->config = options_->config;
  const auto prefixed = c10::make_intrusive<PrefixStore>(store_prefix(), store);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) {
    return nullptr;
  }
  for (const int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    made->global_ranks_in_group.push_back(global.empty() ? rank : global.at(rank));
  }
  if (options) {
    made->group_name = options->group_name;
    made->group_desc = options->group_desc;
  }
  const int rank = static_cast<int>(own - ranks.begin());
  const int size = static_cast<int>(ranks.size());
  const auto gloo = make_gloo(prefixed, rank, size, made->timeout);
  return c10::make_intrusive<ProcessGroupOCCL>(prefixed, gloo, rank, size, made);
}

// The communication stream of this key and device. The first use makes it.
orStream_t ProcessGroupOCCL::stream(const std::string& key, c10::Device device) {
  const std::lock_guard lock(mutex_);
  orStream_t& stream = streams_[c10::str(key, "@", static_cast<int>(device.index()))];
  if (stream == nullptr) {
    const c10::openreg::CurrentDevice current(device.index());
    OPENREG_CHECK(orStreamCreateWithPriority(&stream, 0, options_->is_high_priority_stream ? -1 : 0));
  }
  return stream;
}

std::shared_ptr<Request> ProcessGroupOCCL::make_request(
    Verb verb, OpType type, const at::Tensor& example, std::chrono::milliseconds timeout) {
  auto request = std::make_shared<Request>();
  request->verb = verb;
  request->type = type;
  request->timeout = timeout == kUnsetTimeout ? options_->timeout : timeout;
  request->timeout += std::exchange(ephemeral_timeout_, std::chrono::milliseconds(0));
  if (example.defined()) {
    request->shape = example.sizes().vec();
    request->dtype = example.scalar_type();
  }
  return request;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::submit(
    const std::string& key, c10::Device device, std::shared_ptr<Request> request, std::vector<at::Tensor> outputs) {
  c10::openreg::check_not_forked();
  request->sequence = key == kCollectives ? ++sequence_ : ++peer_sequences_[key];
  if (coalescing_) {
    coalesced_[key].push_back(std::move(request));
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
    TORCH_CHECK(
        !coalesced_device_ || *coalesced_device_ == device, "All tensors of a coalesced call must be on one device");
    coalesced_device_ = device;
    return nullptr;
  }
  const OpType type = request->type;
  const uint64_t sequence = request->sequence;
  Chains chains;
  chains[key].push_back(std::move(request));
  return enqueue(type, device, sequence, std::move(chains), std::move(outputs));
}

// Queues the chains of a call on their communication streams. No other function brings collectives to the device.
c10::intrusive_ptr<Work> ProcessGroupOCCL::enqueue(
    OpType type, c10::Device device, uint64_t sequence, Chains chains, std::vector<at::Tensor> outputs) {
  RECORD_FUNCTION(name_of(type), c10::ArrayRef<const c10::IValue>{});
  auto state = std::make_shared<WorkState>();
  state->caller = c10::openreg::current_stream_handle(device.index());
  {
    const std::lock_guard lock(mutex_);
    state->raised = raised_;
  }
  const auto call = std::make_shared<Call>(
      c10::intrusive_ptr<ProcessGroupOCCL>::unsafe_reclaim_from_nonowning(this),
      device.index(),
      type,
      sequence,
      state,
      chains.size());
  const c10::openreg::CurrentDevice current(device.index());
  orEvent_t event = nullptr;
  OPENREG_CHECK(orEventCreate(&event));
  auto work = c10::make_intrusive<WorkOCCL>(
      rank_, type, device, sequence, std::move(outputs), std::move(state), event, type == OpType::BARRIER);
  // Each chain has the stream of its key. So messages to one rank, or from one rank, keep the order of the calls,
  // whether they are coalesced or not.
  const orStream_t joined = chains.size() == 1 ? nullptr : stream("coalesced", device);
  for (auto& [key, requests] : chains) {
    const orStream_t comm = stream(key, device);
    call->state->stream = joined != nullptr ? joined : comm;
    c10::openreg::order_after_current_stream(comm, device.index());
    auto chain = std::make_unique<Chain>(call, std::move(requests));
    if (orIsObserved(orActivityUse)) { // as record_stream(): the chain keeps the tensors until the collective is done
      Chain::visit(
          chain.get(),
          [](const orOperand* operand, void* stream) { orNoteUse(operand->data, static_cast<orStream_t>(stream)); },
          comm);
    }
    const orKernel kernel{name_of(type), &Chain::visit, chain.get()};
    OPENREG_CHECK(orLaunchDeferred(comm, &Chain::begin, chain.get(), &kernel));
    chain.release();
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

void ProcessGroupOCCL::startCoalescing() {
  coalescing_ = true;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::endCoalescing() {
  coalescing_ = false;
  Chains chains = std::exchange(coalesced_, {});
  std::vector<at::Tensor> outputs = std::exchange(coalesced_outputs_, {});
  const std::optional<c10::Device> device = std::exchange(coalesced_device_, std::nullopt);
  return device ? enqueue(OpType::COALESCED, *device, sequence_, std::move(chains), std::move(outputs)) : nullptr;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::coalesced(const std::function<void()>& calls) {
  const bool within = coalescing_;
  coalescing_ = true;
  try {
    calls();
  } catch (...) {
    coalescing_ = within;
    if (!within) {
      endCoalescing();
    }
    throw;
  }
  return within ? nullptr : endCoalescing();
}

} // namespace c10d::openreg
