#include "pointer.h"

#include "device_memory.h"
#include "pinned_memory.h"
#include "runtime.h"
#include "windows.h"

namespace openreg {

Place locate(const void* ptr) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  if (windows.containsDevice(address)) {
    const int device = windows.deviceOf(address);
    const auto found = deviceMemory(device).find(address);
    return found ? Place{orMemoryTypeDevice, device, found->begin, found->size, found->hostAccessible}
                 : Place{orMemoryTypeDevice, device, 0, 0, false};
  }
  if (const auto found = findPinned(address)) {
    return {orMemoryTypeHost, found->device, found->begin, found->size, true};
  }
  return {orMemoryTypeUnregistered, -1, 0, 0, true};
}

} // namespace openreg

using namespace openreg;

orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (attributes == nullptr) {
      return fail(orErrorInvalidValue, "attributes is NULL; pass the address of an orPointerAttributes");
    }
    Place place = locate(ptr);
    if (place.type == orMemoryTypeDevice && place.begin == 0) { // freed, or never allocated
      place = {orMemoryTypeUnregistered, -1, 0, 0, false};
    }
    void* const same = const_cast<void*>(ptr);
    attributes->type = place.type;
    attributes->device = place.device;
    attributes->devicePointer = place.begin != 0 ? same : nullptr;
    attributes->hostPointer = place.hostAccessible ? same : nullptr;
    attributes->base = reinterpret_cast<void*>(place.begin);
    attributes->size = place.size;
    return orSuccess;
  });
}
