#include <c10/core/StorageImpl.h>

#include "runtime/OpenRegGuard.h"
#include "runtime/OpenRegHooks.h"
#include "runtime/OpenRegStorage.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "runtime/memory/OpenRegHostAllocator.h"

// Gives PyTorch the runtime of the device. PyTorch has a registry for each of these interfaces.
namespace c10::openreg {
namespace {

// LITERALINCLUDE START: GUARD REGISTRATION
C10_REGISTER_GUARD_IMPL(PrivateUse1, OpenRegGuardImpl);
// LITERALINCLUDE END: GUARD REGISTRATION

// LITERALINCLUDE START: DEVICE ALLOCATOR REGISTRATION
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, device_allocator());
REGISTER_HOST_ALLOCATOR(DeviceType::PrivateUse1, host_allocator());
// LITERALINCLUDE END: DEVICE ALLOCATOR REGISTRATION

// LITERALINCLUDE START: HOOKS REGISTRATION
const bool backend_is_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new OpenRegHooks);
  c10::SetStorageImplCreate(DeviceType::PrivateUse1, &create_storage);
  return true;
}();
// LITERALINCLUDE END: HOOKS REGISTRATION

} // namespace
} // namespace c10::openreg
