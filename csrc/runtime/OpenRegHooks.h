#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

// Answers those questions of PyTorch about the device type that need neither a tensor nor a device guard: whether the
// backend is available, which generators it has, how memory is pinned, and how a storage is resized.
//
// Rule: PyTorch has one object for each device type, which all devices and threads share. So the object holds no state:
// every method forwards to the runtime.
namespace c10::openreg {

struct OpenRegHooks final : public at::PrivateUse1HooksInterface {
  // ---- Whether there is a device. torch.accelerator, autograd and torch.compile ask this before the device starts.
  // isAvailable() and deviceCount() are REQUIRED not to raise: without a device they return false and 0.
  bool isBuilt() const override;
  bool isAvailable() const override;
  bool hasPrimaryContext(DeviceIndex device) const override;
  DeviceIndex deviceCount() const override;

  // PyTorch calls init() once, when the device is first needed (at::Context::lazyInitDevice). Raises if the device
  // cannot be used, and in a child that was forked after the device started.
  void init() const override;

  // ---- The calling thread's current device. No method waits. The exchanging methods return the previous device; both
  // ignore a negative `device`.
  DeviceIndex getCurrentDevice() const override;
  void setCurrentDevice(DeviceIndex device) const override;
  DeviceIndex exchangeDevice(DeviceIndex device) const override;
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override;

  // ---- Generators. torch.manual_seed() calls getDefaultGenerator() before the device starts: it must not start it.
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override;
  at::Generator getNewGenerator(DeviceIndex device) const override;

  // ---- Memory.
  Device getDeviceFromPtr(void* data) const override; // raises for an address of the host
  bool isPinnedPtr(const void* data) const override;  // Tensor.is_pinned(): must not raise for any address
  at::Allocator* getPinnedMemoryAllocator() const override;

  // UntypedStorage.resize_(). Keeps the first bytes. Does not wait: the copy is queued on the current stream.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override;
};

} // namespace c10::openreg
