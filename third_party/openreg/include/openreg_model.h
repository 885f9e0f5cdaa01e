/*
 * openreg_model: which accelerator the devices stand for. The numbers of its properties, how many devices there are, how
 * much memory each has and whether one reads another's memory. Without a model the devices are openreg's own.
 */
#ifndef OPENREG_MODEL_H
#define OPENREG_MODEL_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct orDeviceModel {
  orDeviceProp properties; /* uuid and pci numbers are each device's own, and ignored here */
  int deviceCount;         /* 1 to 64; OPENREG_DEVICE_COUNT wins over it */
  bool peerAccess;         /* what orDeviceCanAccessPeer says of two devices */
} orDeviceModel;

/* openreg's own: what to change a copy of. */
OPENREG_EXPORT orError_t orGetOwnDeviceModel(orDeviceModel* model);

/* The model from here on, copied; NULL: openreg's own. `properties.totalGlobalMem`, at least 1 MiB, is the capacity, and
 * OPENREG_DEVICE_MEMORY wins over it. The environment is read again at the next call that needs it.
 * orErrorNotPermitted if the simulator has started. orErrorInvalidValue for a number that makes no sense. */
OPENREG_EXPORT orError_t orSetDeviceModel(const orDeviceModel* model);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_MODEL_H */
