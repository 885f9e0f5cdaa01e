#pragma once

#include <openreg_model.h>

#include "OpenRegException.h"

namespace c10::openreg {

// What the devices stand for, from here on; null: openreg's own. Throws once the device has started. The devices are counted
// again: a model has a number of them.
OPENREG_API void set_device_model(const orDeviceModel* model);

} // namespace c10::openreg
