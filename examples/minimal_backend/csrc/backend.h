#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

// What PyTorch asks of a device: the current device and stream, and whether there is one.
namespace abacus {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline const c10::Device kDevice(kType, 0);

// HARDWARE: this backend has one device, and one stream, on which work is finished when the call returns. For more
// devices, use the driver's current device here. The third step has streams.
struct Guard : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kType;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return kDevice;
  }
  c10::Device getDevice() const override {
    return kDevice;
  }
  void setDevice(c10::Device device) const override {
    const int index = device.index();
    TORCH_CHECK(index <= 0, "There is one abacus device, with the index 0, but got ", index, ".");
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return getDefaultStream(kDevice);
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream) const override {
    return getStream(kDevice);
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
};
// HARDWARE: ask the driver whether it finds a device. On a machine without a device, `import torch` must work as if the
// package were not there.
struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
};

} // namespace abacus
