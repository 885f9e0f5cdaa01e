#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/OpenRegFunctions.h"

// The interface that c10::DeviceGuard, c10::StreamGuard, c10::Event, torch.Stream, torch.Event and torch.accelerator
// call. PyTorch has one object for each device type, so the object holds no state: every method forwards to the
// runtime.
namespace c10::openreg {

// LITERALINCLUDE START: GUARD
struct OpenRegGuardImpl : public c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override;

  // ---- devices. None of these methods waits for the device, except synchronizeDevice().

  // DeviceGuard calls exchangeDevice() in its constructor. Raises for a device that does not exist.
  Device exchangeDevice(Device device) const override;
  Device getDevice() const override;
  void setDevice(Device device) const override;

  // DeviceGuard calls this method in its destructor, also while an exception propagates. REQUIRED not to raise.
  void uncheckedSetDevice(Device device) const noexcept override;

  // PyTorch calls this method when it looks for an accelerator, and when it exits. REQUIRED not to raise: on a machine
  // without a device the result is 0.
  DeviceIndex deviceCount() const noexcept override;

  // torch.accelerator.get_device_capability(): the dtypes that the device computes with.
  DeviceCapability getDeviceCapability(Device device) const override;

  // torch.accelerator.synchronize(). Waits for all work of the device. Raises the errors of that work.
  void synchronizeDevice(const DeviceIndex device) const override;

  // ---- streams. Only synchronizeStream() waits for the device.

  // These methods return streams of `device`, whatever the current device is.
  Stream getStream(Device device) const override; // the calling thread's current stream
  Stream getDefaultStream(Device device) const override;
  Stream getStreamFromGlobalPool(Device device, bool isHighPriority) const override;
  Stream getNewStream(Device device, int priority) const override; // torch.Stream()

  // StreamGuard calls this method in its constructor, and in its destructor with the previous stream. Leaves the
  // current device as it is. Raises only for a stream that the runtime has not made, so never in a destructor.
  Stream exchangeStream(Stream stream) const override;
  void* getStreamNativeHandle(const Stream stream) const override;

  // Whether the work that is queued now is done. Raises the error of such work.
  bool queryStream(const Stream& stream) const override;
  void synchronizeStream(const Stream& stream) const override;
  bool isStreamCapturing(const Stream& stream) const override;

  // ---- events. An event is null until its first record(). Only synchronizeEvent() waits for the device.

  // The first record() makes the event, on the device of `stream`, and writes its handle to `*event`. Raises if `device`,
  // the device of an event that was recorded before, is not that of `stream`. Leaves the current device as it is.
  void record(void** event, const Stream& stream, const DeviceIndex device, const EventFlag flag) const override;

  // Later work of `stream` waits for the event, on the device. A null event is done. So it is for both methods below.
  void block(void* event, const Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;

  // Milliseconds between two events. Raises if one of them is not done, or records no times.
  double elapsedTime(void* start, void* end, const DeviceIndex device) const override;

  // c10::Event calls this method in its destructor, also when Python exits. REQUIRED not to raise. Work that is queued
  // on the event keeps it alive.
  void destroyEvent(void* event, const DeviceIndex device) const noexcept override;

  // Tensor.record_stream(): the memory is not used again before the work that is queued on `stream` when it is freed.
  void recordDataPtrOnStream(const DataPtr& data, const Stream& stream) const override;
};
// LITERALINCLUDE END: GUARD

} // namespace c10::openreg
