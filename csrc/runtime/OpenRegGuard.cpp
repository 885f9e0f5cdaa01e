#include "runtime/OpenRegGuard.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <openreg_activity.h>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStream.h"
#include "runtime/OpenRegTrace.h"

namespace c10::openreg {
namespace {

Device device_at(DeviceIndex index) {
  return Device(identity.type, index);
}

void check_type(Device device) {
  TORCH_CHECK(device.type() == identity.type, "Expected ", identity.a_device, " device, but got ", device);
}

// Whether the work that a query asked about is done. orErrorNotReady means "not yet", and is no failure.
bool finished(orError_t result) {
  if (result == orErrorNotReady) {
    return false;
  }
  OPENREG_CHECK(result);
  return true;
}

} // namespace

DeviceType OpenRegGuardImpl::type() const {
  return identity.type;
}

Device OpenRegGuardImpl::exchangeDevice(Device device) const {
  check_type(device);
  return device_at(exchange_device(device.index()));
}

Device OpenRegGuardImpl::getDevice() const {
  return device_at(current_device());
}

void OpenRegGuardImpl::setDevice(Device device) const {
  check_type(device);
  set_device(device.index());
}

void OpenRegGuardImpl::uncheckedSetDevice(Device device) const noexcept {
  orSetDevice(device.index()); // called from destructors, which cannot report an error
}

DeviceIndex OpenRegGuardImpl::deviceCount() const noexcept {
  return device_count();
}

DeviceCapability OpenRegGuardImpl::getDeviceCapability(Device) const {
  return DeviceCapability(); // as constructed, with all dtypes
}

void OpenRegGuardImpl::synchronizeDevice(const DeviceIndex device) const {
  device_synchronize(device);
  notify_host_wait();
}

Stream OpenRegGuardImpl::getStream(Device device) const {
  return getCurrentOpenRegStream(device.index());
}

Stream OpenRegGuardImpl::getDefaultStream(Device device) const {
  return getDefaultOpenRegStream(device.index());
}

Stream OpenRegGuardImpl::getStreamFromGlobalPool(Device device, bool isHighPriority) const {
  return getStreamFromPool(isHighPriority ? -1 : 0, device.index());
}

Stream OpenRegGuardImpl::getNewStream(Device device, int priority) const {
  return getStreamFromPool(priority, device.index());
}

Stream OpenRegGuardImpl::exchangeStream(Stream stream) const {
  const OpenRegStream previous = getCurrentOpenRegStream(stream.device_index());
  setCurrentOpenRegStream(OpenRegStream(stream));
  return previous;
}

void* OpenRegGuardImpl::getStreamNativeHandle(const Stream stream) const {
  return OpenRegStream(stream).stream();
}

bool OpenRegGuardImpl::queryStream(const Stream& stream) const {
  const orStream_t native_stream = OpenRegStream(stream).stream();
  const bool done = finished(orStreamQuery(native_stream));
  if (done) {
    orNoteWait(native_stream, nullptr); // the host now knows that the work is done
  }
  return done;
}

void OpenRegGuardImpl::synchronizeStream(const Stream& stream) const {
  note_synchronization(); // for set_sync_debug_mode(), which, as on CUDA, reports waits for a stream only
  const orStream_t native_stream = OpenRegStream(stream).stream();
  trace([&](const auto& tracer) {
    tracer.trace_gpu_stream_synchronization(identity.type, trace_id(stream, native_stream));
  });
  OPENREG_CHECK(orStreamSynchronize(native_stream));
  notify_host_wait();
}

bool OpenRegGuardImpl::isStreamCapturing(const Stream& stream) const {
  return capture_of(stream) != 0;
}

// LITERALINCLUDE START: GUARD EVENT
void OpenRegGuardImpl::record(
    void** event, const Stream& stream, const DeviceIndex device, const EventFlag flag) const {
  TORCH_CHECK(
      device == -1 || device == stream.device_index(),
      "Event device index ",
      static_cast<int>(device),
      " does not match recording stream's device index ",
      static_cast<int>(stream.device_index()),
      ".");
  auto handle = static_cast<orEvent_t>(*event);
  const orStream_t native_stream = OpenRegStream(stream).stream();
  if (!handle) { // PyTorch passes a null event at the first record, and the backend makes the event
    // As in CUDAGuardImpl.h: only events of BACKEND_DEFAULT record times, and not those of PYTORCH_DEFAULT.
    const bool timing = flag == EventFlag::BACKEND_DEFAULT;
    *event = handle = create_event(stream, timing ? orEventEnableTiming : orEventDisableTiming);
  }
  OPENREG_CHECK(orEventRecord(handle, native_stream));
  trace([&](const auto& tracer) {
    tracer.trace_gpu_event_record(identity.type, trace_id(handle), trace_id(stream, native_stream));
  });
}

void OpenRegGuardImpl::block(void* event, const Stream& stream) const {
  if (event) { // nothing waits for an event that was never recorded
    const orStream_t native_stream = OpenRegStream(stream).stream();
    OPENREG_CHECK(orStreamWaitEvent(native_stream, static_cast<orEvent_t>(event), 0));
    trace([&](const auto& tracer) {
      tracer.trace_gpu_event_wait(identity.type, trace_id(event), trace_id(stream, native_stream));
    });
  }
}
// LITERALINCLUDE END: GUARD EVENT

bool OpenRegGuardImpl::queryEvent(void* event) const {
  if (!event) {
    return true;
  }
  const auto handle = static_cast<orEvent_t>(event);
  const bool done = finished(orEventQuery(handle));
  if (done) {
    orNoteWait(nullptr, handle); // the host now knows that the work is done
  }
  return done;
}

void OpenRegGuardImpl::synchronizeEvent(void* event) const {
  if (event) {
    trace([&](const auto& tracer) { tracer.trace_gpu_event_synchronization(identity.type, trace_id(event)); });
    OPENREG_CHECK(orEventSynchronize(static_cast<orEvent_t>(event)));
    notify_host_wait();
  }
}

double OpenRegGuardImpl::elapsedTime(void* start, void* end, const DeviceIndex) const {
  TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
  float milliseconds = 0;
  OPENREG_CHECK(orEventElapsedTime(&milliseconds, static_cast<orEvent_t>(start), static_cast<orEvent_t>(end)));
  return milliseconds;
}

void OpenRegGuardImpl::destroyEvent(void* event, const DeviceIndex) const noexcept {
  if (event) {
    trace([&](const auto& tracer) { tracer.trace_gpu_event_deletion(identity.type, trace_id(event)); });
    orEventDestroy(static_cast<orEvent_t>(event));
  }
}

void OpenRegGuardImpl::recordDataPtrOnStream(const DataPtr& data, const Stream& stream) const {
  c10::getDeviceAllocator(identity.type)->recordStream(data, stream);
}

} // namespace c10::openreg
