#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/OpenRegFunctions.h"

// The interface that c10::DeviceGuard, c10::StreamGuard, c10::Event, torch.Stream, torch.Event and torch.accelerator
// call. PyTorch has one object for each device type, so the object holds no state: every method forwards to the
// runtime.
namespace c10::openreg {

// LITERALINCLUDE START: GUARD
struct OpenRegGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override;

  Device exchangeDevice(Device device) const override;
  Device getDevice() const override;
  void setDevice(Device device) const override;
  void uncheckedSetDevice(Device device) const noexcept override;
  DeviceIndex deviceCount() const noexcept override;
  DeviceCapability getDeviceCapability(Device device) const override;
  void synchronizeDevice(const DeviceIndex device) const override;

  Stream getStream(Device device) const override;
  Stream getDefaultStream(Device device) const override;
  Stream getStreamFromGlobalPool(Device device, bool isHighPriority) const override;
  Stream getNewStream(Device device, int priority) const override;
  Stream exchangeStream(Stream stream) const override;
  void* getStreamNativeHandle(const Stream stream) const override;
  bool queryStream(const Stream& stream) const override;
  void synchronizeStream(const Stream& stream) const override;
  bool isStreamCapturing(const Stream& stream) const override;

  void record(void** event, const Stream& stream, const DeviceIndex device, const EventFlag flag) const override;
  void block(void* event, const Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  double elapsedTime(void* start, void* end, const DeviceIndex device) const override;
  void destroyEvent(void* event, const DeviceIndex device) const noexcept override;

  void recordDataPtrOnStream(const DataPtr& data, const Stream& stream) const override;
};
// LITERALINCLUDE END: GUARD

// LEFT OUT OF A NEW BACKEND START: events of other processes, which PyTorch knows for the type cuda only
// Gives `handle` to `event`, which has no handle yet, because it was never recorded. `event` then owns `handle`, and
// belongs to `device`. PyTorch has no such function: c10::Event asks the backend for a handle at its first record().
OPENREG_API void set_handle(c10::Event& event, orEvent_t handle, DeviceIndex device);
// LEFT OUT OF A NEW BACKEND END

} // namespace c10::openreg
