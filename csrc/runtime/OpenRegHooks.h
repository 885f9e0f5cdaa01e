#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

// Answers those questions of PyTorch about the device type that need neither a tensor nor a device guard: whether the
// backend is available, which generators it has, how memory is pinned, and how a storage is resized.
//
// Rule: PyTorch has one object for each device type, which all devices and threads share. So the object holds no state:
// every method forwards to the runtime.
namespace c10::openreg {

struct OpenRegHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override;
  bool isAvailable() const override;
  bool hasPrimaryContext(DeviceIndex device) const override;
  void init() const override;

  DeviceIndex deviceCount() const override;
  DeviceIndex getCurrentDevice() const override;
  void setCurrentDevice(DeviceIndex device) const override;
  DeviceIndex exchangeDevice(DeviceIndex device) const override;
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override;

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override;
  at::Generator getNewGenerator(DeviceIndex device) const override;

  Device getDeviceFromPtr(void* data) const override;
  bool isPinnedPtr(const void* data) const override;
  at::Allocator* getPinnedMemoryAllocator() const override;
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override;
};

} // namespace c10::openreg
