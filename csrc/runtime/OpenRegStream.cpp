#include "runtime/OpenRegStream.h"

#include <c10/util/ScopeExit.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegTrace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <type_traits>

namespace c10::openreg {
namespace {

constexpr int kStreamsPerPool = 32;
constexpr int kPriorities = 4; // 0, -1, -2, -3: what orDeviceGetStreamPriorityRange() reports
constexpr int kStreams = 1 + kPriorities * kStreamsPerPool; // id 0 is the default stream

struct DeviceStreams {
  std::array<std::atomic<orStream_t>, kStreams> handles{};
  std::array<std::atomic<uint32_t>, kPriorities> next{};
  std::mutex create; // A leaf lock. create() throws in a forked child before it takes the lock.
};

DeviceStreams& streams_of(DeviceIndex device) {
  static_assert(std::is_trivially_destructible_v<DeviceStreams>); // queues may outlive static destructors
  static constinit std::array<DeviceStreams, kMaxDevices> all;
  return all[device];
}

// The current stream's id on each device, in one byte. The loader reserves a little static thread-local storage for
// libraries that are loaded late. If all thread-local variables of the library fit there, an access takes two
// instructions, otherwise seventeen.
thread_local std::array<uint8_t, kMaxDevices> current_ids{};
static_assert(kStreams - 1 <= std::numeric_limits<uint8_t>::max());

OpenRegStream make_stream(DeviceIndex device, StreamId id) {
  return {OpenRegStream::UNCHECKED, Stream(Stream::UNSAFE, Device(identity.type, device), id)};
}

DeviceIndex checked(DeviceIndex device) {
  if (device < 0) {
    return current_device();
  }
  check_device_index(device);
  return device;
}

orStream_t create(DeviceStreams& streams, DeviceIndex device, StreamId id) {
  check_not_forked();
  orStream_t handle;
  {
    const std::lock_guard lock(streams.create);
    handle = streams.handles[id].load(std::memory_order_acquire);
    if (handle) {
      return handle;
    }
    if (id == 0) {
      OPENREG_CHECK(orDeviceGetDefaultStream(&handle, device));
    } else {
      const CurrentDevice current(device);
      OPENREG_CHECK(
          orStreamCreateWithPriority(&handle, orStreamPersistent, -static_cast<int>((id - 1) / kStreamsPerPool)));
    }
    streams.handles[id].store(handle, std::memory_order_release);
  }
  if (id != 0) { // without the lock, because a tracer in Python takes the GIL
    trace([&](const auto& tracer) { tracer.trace_gpu_stream_creation(identity.type, trace_id(handle)); });
  }
  return handle;
}

void wait_for(orStream_t waiting, Stream other) {
  const orEvent_t event = create_event(other);
  const auto destroy = c10::make_scope_exit([&] { orEventDestroy(event); });
  OPENREG_CHECK(orEventRecord(event, OpenRegStream(other)));
  OPENREG_CHECK(orStreamWaitEvent(waiting, event, 0));
}

} // namespace

OpenRegStream::OpenRegStream(Stream stream) : stream_(stream) {
  TORCH_CHECK(
      stream.device_type() == identity.type && 0 <= stream.id() && stream.id() < kStreams,
      "Expected a stream of the ",
      identity.device,
      " device, but got ",
      stream,
      ".");
  check_device_index(stream.device_index());
}

orStream_t OpenRegStream::stream() const {
  DeviceStreams& streams = streams_of(device_index());
  const orStream_t handle = streams.handles[id()].load(std::memory_order_acquire);
  return C10_LIKELY(handle != nullptr) ? handle : create(streams, device_index(), id());
}

int OpenRegStream::priority() const {
  int priority = 0;
  OPENREG_CHECK(orStreamGetPriority(stream(), &priority));
  return priority;
}

OpenRegStream getDefaultOpenRegStream(DeviceIndex device) {
  return make_stream(checked(device), 0);
}

OpenRegStream getCurrentOpenRegStream(DeviceIndex device) {
  if (C10_UNLIKELY(device < 0 || device >= kMaxDevices)) {
    device = checked(device);
  }
  const uint8_t id = current_ids[device];
  if (C10_UNLIKELY(!streams_of(device).handles[id])) {
    check_device_index(device); // a device whose current stream has a handle exists
  }
  return make_stream(device, id);
}

orStream_t current_stream_handle(DeviceIndex device) {
  if (C10_LIKELY(0 <= device && device < kMaxDevices)) {
    if (orStream_t const handle = streams_of(device).handles[current_ids[device]].load(std::memory_order_acquire);
        C10_LIKELY(handle != nullptr)) {
      return handle;
    }
  }
  return getCurrentOpenRegStream(device).stream();
}

void setCurrentOpenRegStream(OpenRegStream stream) {
  stream.stream(); // throws if the device cannot make the stream
  current_ids[stream.device_index()] = static_cast<uint8_t>(stream.id());
}

OpenRegStream getStreamFromPool(int priority, DeviceIndex device) {
  check_not_forked();
  device = checked(device);
  const int pool = -std::clamp(priority, 1 - kPriorities, 0);
  DeviceStreams& streams = streams_of(device);
  const uint32_t turn = streams.next[pool].fetch_add(1, std::memory_order_relaxed);
  const StreamId id = 1 + pool * kStreamsPerPool + turn % kStreamsPerPool;
  if (!streams.handles[id].load(std::memory_order_acquire)) {
    create(streams, device, id);
  } else if (RuntimeObserver* const known = observer()) {
    known->before_stream_from_pool(device);
  }
  return make_stream(device, id);
}

OpenRegStream getStreamFromExternal(orStream_t handle, DeviceIndex device) {
  check_device_index(device);
  if (!handle) {
    return getDefaultOpenRegStream(device);
  }
  const auto& handles = streams_of(device).handles;
  const auto found = std::find(handles.begin(), handles.end(), handle);
  TORCH_CHECK(
      found != handles.end(),
      "Expected a stream that PyTorch made on device ",
      static_cast<int>(device),
      ", but got the address ",
      static_cast<void*>(handle),
      ".");
  return make_stream(device, found - handles.begin());
}

orEvent_t create_event(Stream stream, unsigned int flags) {
  orEvent_t event = nullptr;
  const CurrentDevice current(stream.device_index());
  OPENREG_CHECK(orEventCreateWithFlags(&event, flags));
  trace([&](const auto& tracer) { tracer.trace_gpu_event_creation(identity.type, trace_id(event)); });
  return event;
}

void order_after_current_stream(orStream_t stream, DeviceIndex device) {
  const OpenRegStream current = getCurrentOpenRegStream(device);
  if (!stream) {
    stream = getDefaultOpenRegStream(device);
  }
  if (stream != current.stream()) {
    wait_for(stream, current);
  }
}

void wait_for_stream(Stream waiting, Stream other) {
  wait_for(OpenRegStream(waiting), other);
}

bool start_and_query_inline() {
  OPENREG_CHECK(orGetExecutionMode(nullptr, nullptr));
  return orExecutesInline();
}

} // namespace c10::openreg
