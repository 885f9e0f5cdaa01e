/*
 * openreg_model: chooses the accelerator that the devices stand for. A model sets the properties, the number of
 * devices, the memory of each device, and whether devices have peer access. Without a model the devices are openreg's
 * own.
 */
#ifndef OPENREG_MODEL_H
#define OPENREG_MODEL_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct orDeviceModel {
  orDeviceProp properties; /* `uuid` and `pciBusID` are ignored: each device has its own */
  int deviceCount;         /* 1 to 64; OPENREG_DEVICE_COUNT takes precedence */
  bool peerAccess;         /* the result of orDeviceCanAccessPeer for two devices */
} orDeviceModel;

/* The model of openreg's own devices. A caller copies it and changes members. */
OPENREG_EXPORT orError_t orGetOwnDeviceModel(orDeviceModel* model);

/* Sets the model, which is copied. NULL: openreg's own. The capacity is `properties.totalGlobalMem`, 1 MiB to 16 TiB;
 * OPENREG_DEVICE_MEMORY takes precedence. The environment is read again at the next call that needs it. Returns
 * orErrorNotPermitted if the simulator has started, and orErrorInvalidValue if a number is not valid. */
OPENREG_EXPORT orError_t orSetDeviceModel(const orDeviceModel* model);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_MODEL_H */
