#include "simulator/transport/DryEngine.h"

#include <ATen/core/Tensor.h>
#include <openreg_dry.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "distributed/CollectiveCall.h"
#include "distributed/CollectiveEngine.h"
#include "distributed/InterpreterUse.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegMutex.h"
#include "simulator/dry/CollectiveCost.h"
#include "simulator/dry/Undecided.h"
#include "simulator/transport/FaultyEngine.h"

namespace c10d::openreg {
namespace {

using at::openreg::CollectiveKind;
using at::openreg::CollectiveWork;

int world_ranks_of_host = 1;
std::vector<int> next_ranks; // guarded by Python's interpreter lock, as the making of groups is

// The host of each rank of a new group.
std::vector<int> hosts_of_next_group(int size) {
  std::vector<int> hosts = std::exchange(next_ranks, {});
  if (hosts.size() != static_cast<size_t>(size)) {
    hosts.resize(static_cast<size_t>(size));
    std::iota(hosts.begin(), hosts.end(), 0);
  }
  for (int& each : hosts) {
    each /= world_ranks_of_host;
  }
  return hosts;
}

// ---- The memory of communicators

std::atomic<size_t> memory_of_communicator{0};
std::atomic<size_t> memory_of_exchange{0}; // for each other rank of the host

struct Communicators {
  c10::openreg::ForkSafeMutex mutex;
  std::map<int, CommunicatorMemory> of_devices;
  std::optional<RefusedCommunicator> refused;
};

Communicators& communicators() {
  static auto* const all = new Communicators; // groups may outlive static objects
  return *all;
}

// Takes memory of the device for a group of `ranks` ranks.
void take_memory(c10::DeviceIndex device, size_t size, bool is_new_group, size_t ranks) {
  const c10::openreg::CurrentDevice current(device);
  void* address = nullptr;
  if (orMalloc(&address, size) == orSuccess) {
    const std::lock_guard lock(communicators().mutex);
    CommunicatorMemory& memory = communicators().of_devices[device];
    memory.groups += is_new_group ? 1 : 0;
    memory.bytes += size;
    return;
  }
  orGetLastError(); // so that no later call reports the error
  size_t free = 0, total = 0;
  OPENREG_CHECK(orMemGetInfo(&free, &total));
  constexpr std::string_view kPrefix = ", launched at ";
  std::string line = c10::openreg::launched_at(); // before the lock: it may wait for Python
  if (line.starts_with(kPrefix)) {
    line.erase(0, kPrefix.size());
  }
  {
    const std::lock_guard lock(communicators().mutex);
    if (!communicators().refused) {
      communicators().refused = RefusedCommunicator{std::move(line), device, size, free};
    }
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "The communicator of ",
      ranks,
      " ranks needs ",
      size,
      " bytes of device ",
      static_cast<int>(device),
      ", but ",
      free,
      " bytes are free. NCCL allocates outside of PyTorch's allocator, whose cache it cannot use.");
}

// ---- The engine

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), size_t{0}, [](size_t sum, const at::Tensor& tensor) {
    return sum + tensor.nbytes();
  });
}

CollectiveKind kind_of(Verb verb) {
  switch (verb) {
    case Verb::allreduce:
    case Verb::barrier:
      return CollectiveKind::all_reduce;
    case Verb::alltoall:
    case Verb::gather:
    case Verb::scatter:
      return CollectiveKind::exchange;
    case Verb::send:
    case Verb::recv:
      return CollectiveKind::message;
    default:
      return CollectiveKind::ring;
  }
}

orContents contents_of(const at::Tensor& bytes) {
  return orDryContents(orGetDevicePointer(bytes.data_ptr()), bytes.nbytes());
}

// Answers a request as if each of the other ranks had the same data as this one.
class DryEngine final : public CollectiveEngine {
 public:
  explicit DryEngine(const Ranks& ranks)
      : rank_(static_cast<size_t>(ranks.rank)), hosts_(hosts_of_next_group(ranks.size)) {}

  // What the request moves, for estimates of time.
  CollectiveWork work_of(const CollectiveRequest& request) const {
    const size_t bytes = std::max(bytes_of(request.inputs), bytes_of(request.outputs));
    const CollectiveKind kind = kind_of(request.verb);
    int hosts = 0;
    if (kind == CollectiveKind::message) {
      const size_t peer = request.root < 0 ? rank_ : static_cast<size_t>(request.root); // recv from any rank: no peer
      hosts = hosts_[rank_] == hosts_[peer] ? 1 : 2;
    } else {
      std::vector<int> all = hosts_;
      std::sort(all.begin(), all.end());
      hosts = static_cast<int>(std::unique(all.begin(), all.end()) - all.begin());
    }
    return {kind, static_cast<double>(bytes), static_cast<int>(hosts_.size()), hosts};
  }

  void prepare(const CollectiveRequest& request) override {
    if (hosts_.size() < 2) {
      return;
    }
    DeviceUse& use = uses_[request.device];
    const bool is_new_group = !std::exchange(use.has_communicator, true);
    size_t size = is_new_group ? memory_of_communicator.load() : 0;
    if (request.verb == Verb::alltoall && !std::exchange(use.has_exchanged, true)) {
      const auto neighbours = std::count(hosts_.begin(), hosts_.end(), hosts_[rank_]) - 1;
      size += memory_of_exchange * static_cast<size_t>(neighbours);
    }
    if (size > 0) {
      take_memory(request.device, size, is_new_group, hosts_.size());
    }
  }

  void start(std::shared_ptr<CollectiveRequest> request, Done done) override {
    for (size_t i = 0; i < request->outputs.size(); ++i) {
      answer(request->outputs[i], source_of(*request, i));
    }
    release(request);
    done(nullptr);
  }

  // So streams wait for collectives, as on CUDA, and the host does not: simulated time shows what overlaps.
  bool completes_at_once() const override {
    return true;
  }

  void abort() override {}

 private:
  struct DeviceUse {
    bool has_communicator = false;
    bool has_exchanged = false;
  };

  const size_t rank_;
  const std::vector<int> hosts_;               // of each rank
  std::map<c10::DeviceIndex, DeviceUse> uses_; // guarded by Python's interpreter lock, as the calls of the group are

  // What output number `index` gets: from every rank (all_gather), for this rank (scatter and reduce_scatter), or from
  // and for each rank (all_to_all). Null: only another rank has it.
  const at::Tensor* source_of(const CollectiveRequest& request, size_t index) const {
    const std::vector<at::Tensor>& inputs = request.inputs;
    if (inputs.empty()) {
      return nullptr;
    }
    return &inputs[inputs.size() == 1 ? 0 : request.outputs.size() == 1 ? rank_ : index];
  }

  static void answer(const at::Tensor& output, const at::Tensor* source) {
    if (output.nbytes() == 0 || contents_of(output) == orContentsAbsent) {
      return;
    }
    const bool has_source =
        source != nullptr && source->nbytes() == output.nbytes() && contents_of(*source) != orContentsAbsent;
    if (!has_source) {
      std::memset(output.data_ptr(), 0, output.nbytes());
    } else if (source->data_ptr() != output.data_ptr()) {
      std::memmove(output.data_ptr(), source->data_ptr(), output.nbytes());
    }
  }
};

// Called before the launch, so that the requests are still there.
std::optional<std::vector<CollectiveWork>> read_collective(const orActivity& launch) {
  if (launch.operands != &RequestChain::visit) {
    return std::nullopt;
  }
  const auto* const chain = static_cast<const RequestChain*>(launch.data);
  const auto* const engine = dynamic_cast<const DryEngine*>(&without_faults(*chain->call->group->engine));
  if (engine == nullptr) {
    return std::nullopt;
  }
  std::vector<CollectiveWork> works;
  for (const auto& request : chain->requests) {
    works.push_back(engine->work_of(*request));
  }
  return works;
}

} // namespace

void start_dry_world(int ranks_of_host) {
  world_ranks_of_host = ranks_of_host;
  at::openreg::answer_collectives();
  at::openreg::set_collective_reader(&read_collective);
  set_engine_maker(
      [](const Ranks& ranks) -> std::shared_ptr<CollectiveEngine> { return std::make_shared<DryEngine>(ranks); });
}

void set_ranks_of_next_group(std::vector<int> ranks) {
  next_ranks = std::move(ranks);
}

void set_communicator_memory(size_t communicator, size_t exchange) {
  memory_of_communicator = communicator;
  memory_of_exchange = exchange;
}

std::map<int, CommunicatorMemory> communicator_memory() {
  const std::lock_guard lock(communicators().mutex);
  return communicators().of_devices;
}

std::optional<RefusedCommunicator> refused_communicator() {
  const std::lock_guard lock(communicators().mutex);
  return communicators().refused;
}

} // namespace c10d::openreg
