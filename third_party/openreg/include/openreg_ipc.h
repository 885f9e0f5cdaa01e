/*
 * openreg_ipc: events that several processes share. openreg.h has the same for memory (orIpcGetMemHandle).
 *
 * Names and meanings follow CUDA's runtime API.
 */
#ifndef OPENREG_IPC_H
#define OPENREG_IPC_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct orIpcEventHandle {
  char reserved[64];
} orIpcEventHandle_t;

/* Makes an event of the current device that other processes can open. It has no timing: `flags` is
 * orEventDisableTiming. Every function for events but orEventElapsedTime accepts such an event, in each of the
 * processes:
 *   - All processes may record it. A wait, in any process, is for the latest record, whichever process made it.
 *   - After orStreamWaitEvent, later work of the stream waits until the device of the process that made the record has
 *     reached the record. So do calls that wait for the stream.
 *   - If the process that recorded it ends before its device reached the record, the wait ends. orEventSynchronize, or
 *     orDeviceSynchronize for the event's device, returns orErrorLaunchFailure, once. orStreamSynchronize does not.
 * In CUDA a flag of cudaEventCreateWithFlags makes such an event, and the end of the other process is not noticed. */
OPENREG_EXPORT orError_t orIpcEventCreate(orEvent_t* event, unsigned int flags);

/* orIpcGetEventHandle: returns orErrorInvalidResourceHandle if neither orIpcEventCreate nor orIpcOpenEventHandle made
 * the event. The process must keep the event until the other process has opened it.
 *
 * orIpcOpenEventHandle: makes an event of the current device, which orEventDestroy destroys. Returns
 * orErrorDeviceUninitialized in the process that made the handle, and orErrorInvalidResourceHandle if the event is gone
 * or the handle is damaged. */
OPENREG_EXPORT orError_t orIpcGetEventHandle(orIpcEventHandle_t* handle, orEvent_t event);
OPENREG_EXPORT orError_t orIpcOpenEventHandle(orEvent_t* event, orIpcEventHandle_t handle);

/* Whether orIpcEventCreate or orIpcOpenEventHandle made the event: other processes may record it and wait for it. False
 * if the event does not exist. */
OPENREG_EXPORT bool orIpcIsShared(orEvent_t event);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_IPC_H */
