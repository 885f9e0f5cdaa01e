#include "OpenRegSharing.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "OpenRegStorage.h"
#include "OpenRegStream.h"

namespace c10::openreg {
namespace {

using Counter = std::atomic_ref<int64_t>;

Counter counter_at(const void* counters, size_t index) {
  return Counter(static_cast<int64_t*>(orGetKernelPointer(counters))[index]);
}

std::string memory_handle(void* address) {
  orIpcMemHandle_t handle{};
  OPENREG_CHECK(orIpcGetMemHandle(&handle, address));
  return {handle.reserved, sizeof(handle.reserved)};
}

// ---- the sender

constexpr size_t kTableBytes = 64 << 10;

// The counters of storages of one device. Never freed.
struct CounterTable {
  void* address = nullptr;
  std::string handle;

  explicit CounterTable(DeviceIndex device) {
    const CurrentDevice current(device);
    OPENREG_CHECK(orMalloc(&address, kTableBytes));
    handle = memory_handle(address);
  }
};

struct Slot {
  const CounterTable* table;
  size_t index;
};

// A storage's memory, while it is sent: what its DataPtr has in the place of the allocator's.
struct Sent {
  DataPtr original;
  Slot slot;

  bool in_use() const {
    return counter_at(slot.table->address, slot.index).load(std::memory_order_acquire) != 0;
  }
};

struct Sender {
  std::mutex mutex;
  std::vector<std::vector<Slot>> free_slots; // by device
  std::vector<std::unique_ptr<Sent>> limbo;  // freed here, but in use elsewhere
};

Sender& sender() {
  static auto* sender = new Sender; // leaked: tensors may outlive static destructors
  return *sender;
}

Slot take_slot(DeviceIndex device) {
  const std::lock_guard lock(sender().mutex);
  auto& by_device = sender().free_slots;
  by_device.resize(device_count());
  auto& slots = by_device[device];
  if (slots.empty()) {
    const auto* table = new CounterTable(device);
    for (size_t i = 0; i < kTableBytes / sizeof(int64_t); ++i) {
      slots.push_back({table, i});
    }
  }
  const Slot slot = slots.back();
  slots.pop_back();
  counter_at(slot.table->address, slot.index).store(1, std::memory_order_release);
  return slot;
}

// Without the lock: the memory goes back to the allocator, which has its own.
void free_sent(std::unique_ptr<Sent> sent) {
  const DeviceIndex device = sent->original.device().index();
  const Slot slot = sent->slot;
  sent.reset();
  const std::lock_guard lock(sender().mutex);
  sender().free_slots[device].push_back(slot);
}

// LITERALINCLUDE START: SENT STORAGE
void release_sent(void* context) {
  std::unique_ptr<Sent> sent(static_cast<Sent*>(context));
  if (orIsInBadFork()) { // neither the memory nor the counters are there
    return;
  }
  if (sent->in_use()) {
    const std::lock_guard lock(sender().mutex);
    sender().limbo.push_back(std::move(sent));
  } else {
    free_sent(std::move(sent));
  }
}
// LITERALINCLUDE END: SENT STORAGE

// ---- the receiver

// Memory of another process, open as long as this lives.
class OpenMemory {
 public:
  explicit OpenMemory(const std::string& handle) {
    orIpcMemHandle_t copy{};
    TORCH_CHECK(handle.size() == sizeof(copy.reserved), "Expected a handle of ", sizeof(copy.reserved), " bytes.");
    std::memcpy(copy.reserved, handle.data(), sizeof(copy.reserved));
    OPENREG_CHECK(orIpcOpenMemHandle(&address_, copy, 0));
  }
  ~OpenMemory() {
    close();
  }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

  void* address() const {
    return address_;
  }

  // Waits for the kernels that use the memory. False, and the memory stays, where nothing may wait: in a function that a
  // stream runs.
  bool close() {
    if (address_ && orIpcCloseMemHandle(address_) == orSuccess) {
      address_ = nullptr;
    }
    return !address_;
  }

 private:
  void* address_ = nullptr;
};

// LITERALINCLUDE START: RECEIVED STORAGE
struct Received {
  OpenMemory memory;
  OpenMemory counters;
  size_t counter;

  explicit Received(const SharedStorage& shared)
      : memory(shared.memory), counters(shared.counters), counter(shared.counter) {}

  ~Received() {
    if (!orIsInBadFork() && memory.close()) {
      counter_at(counters.address(), counter).store(0, std::memory_order_release);
    }
  }
};
// LITERALINCLUDE END: RECEIVED STORAGE

} // namespace

SharedStorage share_storage(const Storage& storage) {
  check_not_forked();
  StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(
      !impl->received_cuda(),
      "Attempted to send openreg tensor received from another process; this is not currently supported. Consider "
      "cloning before sending.");
  collect_shared();
  SharedStorage shared;
  shared.device = storage.device().index();
  shared.size = storage.nbytes();
  if (shared.size == 0) {
    return shared;
  }
  void* address = storage.mutable_data();
  OPENREG_CHECK(orStreamSynchronize(stream_handle(current_stream(shared.device))));
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, address));
  shared.memory = memory_handle(attributes.base);
  shared.offset = static_cast<char*>(address) - static_cast<char*>(attributes.base);
  const Slot slot = take_slot(shared.device);
  shared.counters = slot.table->handle;
  shared.counter = slot.index;
  auto* sent = new Sent{DataPtr(), slot};
  sent->original = impl->set_data_ptr(DataPtr(address, sent, &release_sent, storage.device()));
  return shared;
}

Storage open_storage(const SharedStorage& shared) {
  check_device_index(shared.device);
  if (shared.size == 0) {
    return Storage(make_storage(0, shared.device));
  }
  const CurrentDevice current(shared.device);
  auto received = std::make_unique<Received>(shared);
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, received->memory.address()));
  TORCH_CHECK(
      shared.offset <= attributes.size && shared.size <= attributes.size - shared.offset,
      "Expected a storage within its memory of ",
      attributes.size,
      " bytes, but got ",
      shared.size,
      " bytes at ",
      shared.offset,
      ".");
  void* address = static_cast<char*>(received->memory.address()) + shared.offset;
  auto impl = make_intrusive<OpenRegStorageImpl>(
      StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(shared.size),
      DataPtr(
          address,
          received.release(),
          [](void* context) { delete static_cast<Received*>(context); },
          Device(DeviceType::PrivateUse1, shared.device)),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  impl->set_received_cuda(true); // the flag's name; share_storage() asks for it
  return Storage(std::move(impl));
}

void release_storage(const SharedStorage& shared) {
  const CurrentDevice current(shared.device);
  const OpenMemory counters(shared.counters);
  counter_at(counters.address(), shared.counter).store(0, std::memory_order_release);
}

void collect_shared() {
  if (orIsInBadFork()) {
    return;
  }
  std::vector<std::unique_ptr<Sent>> free;
  {
    const std::lock_guard lock(sender().mutex);
    for (auto& sent : sender().limbo) {
      if (!sent->in_use()) {
        free.push_back(std::move(sent));
      }
    }
    std::erase(sender().limbo, nullptr);
  }
  for (auto& sent : free) {
    free_sent(std::move(sent));
  }
}

} // namespace c10::openreg
