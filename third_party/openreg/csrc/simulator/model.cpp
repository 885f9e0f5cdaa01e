#include <openreg_model.h>

#include "error.h"
#include "runtime.h"

// Device models (openreg_model.h): which accelerator the devices stand for.
using namespace openreg;

orError_t orGetOwnDeviceModel(orDeviceModel* model) {
  enter(__func__);
  if (model == nullptr) {
    return fail(orErrorInvalidValue, "model is NULL; pass the address of an orDeviceModel");
  }
  const DeviceDescription& own = ownDevices();
  *model = {own.properties, own.deviceCount, own.peerAccess};
  return orSuccess;
}

orError_t orSetDeviceModel(const orDeviceModel* model) {
  enter(__func__);
  const DeviceDescription next =
      model ? DeviceDescription{model->properties, model->deviceCount, model->peerAccess} : ownDevices();
  if (next.deviceCount < 1 || next.deviceCount > kMaxDevices || !isDeviceMemory(next.properties.totalGlobalMem)) {
    return fail(
        orErrorInvalidValue,
        "the model has %d devices with %zu bytes each, but must have 1 to %d devices with 1M to 16384G",
        next.deviceCount,
        next.properties.totalGlobalMem,
        kMaxDevices);
  }
  if (!describeDevices(next)) {
    return fail(
        orErrorNotPermitted, "the devices have started, and keep their model; choose it before their first use");
  }
  return orSuccess;
}
