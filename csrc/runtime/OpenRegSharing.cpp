#include "runtime/OpenRegSharing.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStorage.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

// ---- processes

// When a process started, in clock ticks since the system started. 0 if that cannot be read; nullopt if the process
// does not exist any more.
std::optional<uint64_t> start_time(int64_t process) {
  const int fd = open(c10::str("/proc/", process, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  char text[1024];
  const ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text));
  const bool gone = size < 0 && (errno == ENOENT || errno == ESRCH);
  if (fd >= 0) {
    close(fd);
  }
  if (size <= 0) {
    return gone ? std::nullopt : std::optional<uint64_t>(0);
  }
  const std::string_view stat(text, size);
  // The second field is the program's name in parentheses, which may contain any character. The third field is the
  // state, and the 22nd is the start time.
  std::istringstream fields(std::string(stat.substr(stat.rfind(')') + 1)));
  char state = 0;
  fields >> state;
  if (state == 'Z' || state == 'X') { // the process has ended; only its exit status is kept
    return std::nullopt;
  }
  std::string skipped;
  for (int field = 4; field < 22; ++field) {
    fields >> skipped;
  }
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

uint64_t now_in_ticks() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks_per_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return now.tv_sec * ticks_per_second + now.tv_nsec * ticks_per_second / 1'000'000'000;
}

// Caches start_time(): a sender may have many messages for few receivers.
class StartTimes {
 public:
  std::optional<uint64_t> operator()(int64_t process) {
    const auto [known, added] = known_.try_emplace(process);
    if (added) {
      known->second = start_time(process);
    }
    return known->second;
  }

 private:
  std::unordered_map<int64_t, std::optional<uint64_t>> known_;
};

// ---- slots

// LITERALINCLUDE START: SLOT
// A slot is one 64-bit word, so that each change of it is one compare-and-swap:
//   0                             nobody uses the memory
//   kInFlight | number            the message with this number is in flight
//   start time << 22 | process    this process has opened the message
using SlotWord = std::atomic_ref<uint64_t>;

constexpr uint64_t kInFlight = uint64_t{1} << 63;
constexpr int kProcessBits = 22; // Linux's process ids fit in 22 bits

uint64_t opened_by_this_process() {
  static const uint64_t start = start_time(getpid()).value_or(0);
  return start << kProcessBits | static_cast<uint64_t>(getpid());
}

bool opener_still_runs(uint64_t word, StartTimes& start_times) {
  const auto started = start_times(static_cast<int64_t>(word & ((1 << kProcessBits) - 1)));
  const uint64_t expected = word >> kProcessBits;
  return started && (*started == expected || *started == 0 || expected == 0);
}
// LITERALINCLUDE END: SLOT

SlotWord slot_at(const void* slots, size_t index) {
  return SlotWord(static_cast<uint64_t*>(orGetKernelPointer(slots))[index]);
}

std::string memory_handle(void* address) {
  orIpcMemHandle_t handle{};
  OPENREG_CHECK(orIpcGetMemHandle(&handle, address));
  return {handle.reserved, sizeof(handle.reserved)};
}

// ---- the sender

constexpr size_t kTableBytes = 64 << 10;

// A table of slots for messages about storages of one device. The table's memory is never freed.
struct SlotTable {
  void* address = nullptr;
  std::string handle;

  explicit SlotTable(DeviceIndex device) {
    const CurrentDevice current(device);
    const ObservedCalls calls(CallKind::Internal);
    OPENREG_CHECK(orMalloc(&address, kTableBytes));
    handle = memory_handle(address);
  }
};

struct SlotPlace {
  const SlotTable* table;
  size_t index;

  SlotWord slot() const {
    return slot_at(table->address, index);
  }
};

// The context of a sent storage's DataPtr. It owns the DataPtr that the storage had before: the allocator's, or that of
// an earlier message. It keeps this DataPtr until no process uses the memory.
struct Sent {
  DataPtr original;
  SlotPlace place;
  std::optional<Processes> receivers;
  uint64_t time = now_in_ticks();

  bool in_use(StartTimes& start_times) const {
    const uint64_t word = place.slot().load(std::memory_order_acquire);
    return word != 0 && ((word & kInFlight) || opener_still_runs(word, start_times));
  }

  // Gives the message up if it is in flight and no process is left that could open it.
  void give_up(const Processes& others, StartTimes& start_times) const {
    const auto runs = [&](int64_t process) { return start_times(process).has_value(); };
    // A process that started after the message was sent is no receiver, even if its id is in `receivers`: the receiver
    // has ended, and the system has given its id to the new process.
    const auto still_runs = [&](int64_t process) { return runs(process) && *start_times(process) <= time; };
    uint64_t word = place.slot().load(std::memory_order_acquire);
    if ((word & kInFlight) && receivers && std::none_of(receivers->begin(), receivers->end(), still_runs) &&
        std::none_of(others.begin(), others.end(), runs)) {
      place.slot().compare_exchange_strong(word, 0, std::memory_order_acq_rel);
    }
  }
};

struct Sender {
  std::mutex mutex;
  std::vector<std::vector<SlotPlace>> free_slots; // by device
  std::vector<std::unique_ptr<Sent>> limbo;       // freed in this process, but still used by another
  uint64_t messages = 0;
};

Sender& sender() {
  static auto* sender = new Sender; // leaked: tensors may outlive static destructors
  return *sender;
}

// Returns a slot for a new message, and the message's number. The slot says that this message is in flight.
std::pair<SlotPlace, uint64_t> take_slot(DeviceIndex device) {
  const std::lock_guard lock(sender().mutex);
  auto& by_device = sender().free_slots;
  by_device.resize(device_count());
  auto& places = by_device[device];
  if (places.empty()) {
    const auto* table = new SlotTable(device);
    for (size_t i = 0; i < kTableBytes / sizeof(uint64_t); ++i) {
      places.push_back({table, i});
    }
  }
  const SlotPlace place = places.back();
  places.pop_back();
  const uint64_t number = ++sender().messages;
  place.slot().store(kInFlight | number, std::memory_order_release);
  return {place, number};
}

// Called without the sender's lock: sent.reset() calls the allocator, which takes a lock of its own, or release_sent()
// of an earlier message, which takes the sender's lock.
void free_sent(std::unique_ptr<Sent> sent) {
  const DeviceIndex device = sent->original.device().index();
  const SlotPlace place = sent->place;
  sent.reset();
  const std::lock_guard lock(sender().mutex);
  sender().free_slots[device].push_back(place);
}

// LITERALINCLUDE START: SENT STORAGE
void release_sent(void* context) {
  std::unique_ptr<Sent> sent(static_cast<Sent*>(context));
  if (orIsInBadFork()) { // a forked child has neither the memory nor the slots
    return;
  }
  StartTimes start_times;
  if (sent->in_use(start_times)) {
    const std::lock_guard lock(sender().mutex);
    sender().limbo.push_back(std::move(sent));
  } else {
    free_sent(std::move(sent));
  }
}
// LITERALINCLUDE END: SENT STORAGE

// ---- the receiver

// Throws unless `is_right`. The type and the code of the exception are those of a handle that the device library
// refuses.
template <class... Args>
void check_handle(bool is_right, const Args&... sentence) {
  if (C10_UNLIKELY(!is_right)) {
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, orErrorInvalidResourceHandle, c10::str(sentence...));
  }
}

// Memory of another process. The memory is open while the object lives.
class OpenMemory {
 public:
  explicit OpenMemory(const std::string& handle) {
    orIpcMemHandle_t copy{};
    check_handle(handle.size() == sizeof(copy.reserved), "Expected a handle of ", sizeof(copy.reserved), " bytes.");
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

  size_t size() const {
    orPointerAttributes attributes{};
    OPENREG_CHECK(orPointerGetAttributes(&attributes, address_));
    return attributes.size;
  }

  // Waits for the kernels that use the memory, then closes the memory and returns true. Inside a host function that a
  // stream runs, waiting is not allowed: the memory stays open, and the result is false.
  bool close() {
    if (address_ && orIpcCloseMemHandle(address_) == orSuccess) {
      address_ = nullptr;
    }
    return !address_;
  }

 private:
  void* address_ = nullptr;
};

// The slot of a message that arrived.
class OpenSlot {
 public:
  explicit OpenSlot(const SharedStorage& shared) : slots_(shared.slots), index_(shared.slot), number_(shared.number) {
    const size_t count = slots_.size() / sizeof(uint64_t);
    check_handle(index_ < count, "Expected the index of one of ", count, " slots, but got ", index_, ".");
  }

  // Throws unless the message is in flight.
  void take(uint64_t word) const {
    uint64_t in_flight = kInFlight | number_;
    check_handle(
        slot().compare_exchange_strong(in_flight, word, std::memory_order_acq_rel),
        "This message was opened before, or its sender has given it up because no process was left that could open it. "
        "A message can be opened once: send the tensor in a message of its own to each process.");
  }

  // Changes nothing if the slot no longer names this process. The sender then believed that this process had ended, and
  // may use the slot for another message.
  void release() const {
    uint64_t word = opened_by_this_process();
    slot().compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }

 private:
  SlotWord slot() const {
    return slot_at(slots_.address(), index_);
  }

  OpenMemory slots_;
  size_t index_;
  uint64_t number_;
};

// LITERALINCLUDE START: RECEIVED STORAGE
struct Received {
  OpenMemory memory;
  OpenSlot slot;

  explicit Received(const SharedStorage& shared) : memory(shared.memory), slot(shared) {
    const size_t size = memory.size();
    check_handle(
        shared.offset <= size && shared.size <= size - shared.offset,
        "Expected a storage within its memory of ",
        size,
        " bytes, but got ",
        shared.size,
        " bytes at ",
        shared.offset,
        ".");
    slot.take(opened_by_this_process()); // last: if a check above throws, the message stays unopened
  }

  ~Received() {
    if (!orIsInBadFork() && memory.close()) {
      slot.release();
    }
  }
};
// LITERALINCLUDE END: RECEIVED STORAGE

// CUDA has the same callback (CudaIPCCollectCallback).
class CollectSharedCallback final : public FreeMemoryCallback {
 public:
  void Execute() override {
    collect_shared();
  }
};

REGISTER_FREE_MEMORY_CALLBACK("collect_shared", CollectSharedCallback);

} // namespace

SharedStorage share_storage(const Storage& storage, std::optional<Processes> receivers) {
  check_not_forked();
  StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(
      !impl->received_cuda(),
      "Attempted to send ",
      identity.device,
      " tensor received from another process; this is not currently supported. Consider "
      "cloning before sending.");
  collect_shared();
  SharedStorage shared;
  shared.device = storage.device().index();
  shared.size = storage.nbytes();
  if (shared.size == 0) {
    return shared;
  }
  void* address = storage.mutable_data();
  OPENREG_CHECK(orStreamSynchronize(getCurrentOpenRegStream(storage.device().index()).stream()));
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, address));
  shared.memory = memory_handle(attributes.base);
  shared.offset = static_cast<char*>(address) - static_cast<char*>(attributes.base);
  const auto [place, number] = take_slot(storage.device().index());
  shared.slots = place.table->handle;
  shared.slot = place.index;
  shared.number = number;
  auto* sent = new Sent{DataPtr(), place, std::move(receivers)};
  sent->original = impl->set_data_ptr(DataPtr(address, sent, &release_sent, storage.device()));
  return shared;
}

Storage open_storage(const SharedStorage& shared) {
  check_device_index(shared.device);
  const Device device(identity.type, static_cast<DeviceIndex>(shared.device));
  if (shared.size == 0) {
    return Storage(make_storage(0, device.index()));
  }
  const CurrentDevice current(device.index());
  auto received = std::make_unique<Received>(shared);
  void* address = static_cast<char*>(received->memory.address()) + shared.offset;
  auto impl = storage_over(
      shared.size,
      DataPtr(address, received.release(), [](void* context) { delete static_cast<Received*>(context); }, device));
  impl->set_received_cuda(true); // share_storage() refuses a storage with this flag, whatever its device
  return Storage(std::move(impl));
}

void release_storage(const SharedStorage& shared) {
  check_device_index(shared.device);
  const CurrentDevice current(static_cast<DeviceIndex>(shared.device));
  OpenSlot(shared).take(0);
}

void collect_shared(std::optional<Processes> possible_receivers) {
  if (orIsInBadFork()) {
    return;
  }
  std::vector<std::unique_ptr<Sent>> free;
  {
    StartTimes start_times;
    const std::lock_guard lock(sender().mutex);
    for (auto& sent : sender().limbo) {
      if (possible_receivers) {
        sent->give_up(*possible_receivers, start_times);
      }
      if (!sent->in_use(start_times)) {
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
