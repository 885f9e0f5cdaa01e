#include "runtime/OpenRegHooks.h"

#include <ATen/core/CachingHostAllocator.h>

#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStorage.h"

namespace c10::openreg {

// LITERALINCLUDE START: HOOKS AVAILABILITY
bool OpenRegHooks::isBuilt() const {
  return true;
}

bool OpenRegHooks::isAvailable() const {
  return device_count() > 0;
}

// This device has no context that could be missing, so the result is true for each device that exists.
bool OpenRegHooks::hasPrimaryContext(DeviceIndex device) const {
  return 0 <= device && device < device_count();
}

void OpenRegHooks::init() const {
  int count = 0;
  OPENREG_CHECK(orGetDeviceCount(&count)); // throws the error that device_count() only warns about
  start();
}
// LITERALINCLUDE END: HOOKS AVAILABILITY

DeviceIndex OpenRegHooks::deviceCount() const {
  return device_count();
}

DeviceIndex OpenRegHooks::getCurrentDevice() const {
  return openreg::current_device(); // qualified: a base class may have a function of this name
}

void OpenRegHooks::setCurrentDevice(DeviceIndex device) const {
  set_device(device);
}

DeviceIndex OpenRegHooks::exchangeDevice(DeviceIndex device) const {
  return exchange_device(device);
}

DeviceIndex OpenRegHooks::maybeExchangeDevice(DeviceIndex device) const {
  return maybe_exchange_device(device);
}

const at::Generator& OpenRegHooks::getDefaultGenerator(DeviceIndex device) const {
  return default_generator(device);
}

at::Generator OpenRegHooks::getNewGenerator(DeviceIndex device) const {
  if (device < 0) {
    device = getCurrentDevice();
  }
  check_device_index(device);
  return new_generator(device);
}

Device OpenRegHooks::getDeviceFromPtr(void* data) const {
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, data));
  TORCH_CHECK(
      attributes.type == orMemoryTypeDevice,
      "The specified pointer resides on host memory and is not registered with any ",
      identity.device,
      " device.");
  return Device(identity.type, static_cast<DeviceIndex>(attributes.device));
}

bool OpenRegHooks::isPinnedPtr(const void* data) const {
  orPointerAttributes attributes{};
  return orPointerGetAttributes(&attributes, data) == orSuccess && attributes.type == orMemoryTypeHost;
}

at::Allocator* OpenRegHooks::getPinnedMemoryAllocator() const {
  return at::getHostAllocator(identity.type);
}

void OpenRegHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const {
  resize_storage(storage.unsafeGetStorageImpl(), size);
}

} // namespace c10::openreg
