#include "runtime/OpenRegIdentity.h"

namespace c10::openreg {

// LITERALINCLUDE START: IDENTITY OF OPENREG
constinit const DeviceIdentity identity{
    .type = DeviceType::PrivateUse1,
    .backend = BackendComponent::PrivateUse1Bit,
    .key = DispatchKey::PrivateUse1,
    .keys = DispatchKeySet(DispatchKey::PrivateUse1),
    .name = "OpenReg",
    .device = "openreg",
    .a_device = "an openreg",
    .module = "torch.openreg",
    .properties_class = "_OpenRegDeviceProperties",
    .uuid_class = "_OpenRegUuid",
    .collectives = "OCCL",
    .no_device = "torch_openreg finds no device: ",
    .old_driver = "The driver on your system is too old: ",
    .invalid_index = "The device index is out of range. ",
    .wrong_generator =
        [](Device other) {
          return c10::str("Expected a generator of the openreg device, but got one of ", other, ".");
        },
    .out_of_memory =
        {.device = "Device",
         .private_pools = "reserved in private pools",
         .process = "This process has",
         .advice = "Free tensors, use a smaller batch, or set OPENREG_DEVICE_MEMORY higher."},
};
// LITERALINCLUDE END: IDENTITY OF OPENREG

} // namespace c10::openreg
