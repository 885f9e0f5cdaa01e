#pragma once

#include <openreg_model.h>

#include "OpenRegException.h"

// Device models (openreg_model.h): which accelerator the simulated devices stand for.
namespace c10::openreg {

// Chooses the accelerator that the devices stand for; null chooses openreg's own. Must be called before the device
// starts, and throws afterwards. From then on, device_count() is the model's number of devices.
OPENREG_API void set_device_model(const orDeviceModel* model);

} // namespace c10::openreg
