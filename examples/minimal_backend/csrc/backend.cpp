#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <Python.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"

// What PyTorch asks of a device: memory, the current device and stream, and whether there is one.
namespace abacus {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

// HARDWARE: a real backend keeps freed blocks, because the driver's allocation is slow and waits for the device.
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes ? abacus::allocate(bytes) : nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, memory || !bytes, "abacus out of memory. Tried to allocate ", bytes, " bytes.");
    return {memory, memory, &release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int64_t n = static_cast<int64_t>(bytes), stride = 1;
    copy_strided(to, &stride, from, &stride, &n, 1, 1);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// HARDWARE: this backend has one device, and one stream, on which work is finished when the call returns. For more
// devices, use the driver's current device here. For more streams, use the driver's queues and events.
struct Guard final : c10::impl::DeviceGuardImplInterface {
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
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return getStream(kDevice);
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
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// HARDWARE: ask the driver whether it finds a device. On a machine without a device, `import torch` must work as if the
// package were not there.
struct Hooks final : at::PrivateUse1HooksInterface {
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
const bool registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true); // lives until the process ends

} // namespace
} // namespace abacus

// The module that Python imports. The import opens the library, whose static initialisers register everything.
extern "C" PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
