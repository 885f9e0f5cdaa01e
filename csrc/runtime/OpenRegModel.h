#pragma once

#include <openreg_model.h>

#include "runtime/OpenRegException.h"

// Device models (openreg_model.h): which accelerator the simulated devices stand for.
namespace c10::openreg {

// Chooses the accelerator that the devices stand for; null chooses openreg's own model. Throws if the device has
// started. After this call, device_count() follows the model; the environment (openreg.h) takes precedence.
OPENREG_API void set_device_model(const orDeviceModel* model);

} // namespace c10::openreg
