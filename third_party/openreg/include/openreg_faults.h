/*
 * openreg_faults: what goes wrong on purpose. A test makes an allocation fail, a copy late, a device disappear, and looks
 * at what the program does then.
 *
 * A fault waits at one or more points. Every call of the device passes its point, in every execution mode; without a fault
 * that costs nothing, because the points of kernels, copies, fills and allocations are those of openreg_activity.h.
 */
#ifndef OPENREG_FAULTS_H
#define OPENREG_FAULTS_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum orFaultPoint {
  orFaultAtAllocation = 1,     /* an allocator is asked for memory: orRequestAllocation */
  orFaultAtSegment = 2,        /* orMalloc */
  orFaultAtHostAllocation = 4, /* orMallocHost */
  orFaultAtKernel = 8,         /* a kernel begins: orKernelBegin, orLaunch */
  orFaultAtCopy = 16,          /* a copy begins to run */
  orFaultAtFill = 32,          /* orMemset and its like */
  orFaultAtStream = 64,        /* orStreamCreate and its like */
  orFaultAtEvent = 128,        /* orEventCreate and its like */
  orFaultAtIpc = 256,          /* orIpcOpenMemHandle */
  orFaultAtStart = 512,        /* the simulator starts, or counts its devices before */
  orFaultAtMessage = 1024,     /* a transfer to other processes begins: orRequestMessage */
} orFaultPoint;
#define orFaultAnywhere 0x7FFu

typedef enum orFaultAction {
  /* The call returns `error`. A kernel, copy or fill that runs in the queue runs, and then `error` is the failure of its
   * stream: nobody may trust what it wrote. */
  orFaultFails = 0,
  orFaultDelays = 1, /* the call, or the stream, sleeps for `amount` nanoseconds before */
  orFaultSlows = 2,  /* of a kernel, copy or fill: it takes `amount` times its time, with `amount` of at least 1 */
  orFaultFlips = 3,  /* of a copy: one bit of what it wrote is wrong */
  orFaultDrops = 4,  /* of a message: it is never sent, and nobody is told */
  orFaultKills = 5,  /* the process ends with SIGKILL */
} orFaultAction;

typedef enum orFaultDuration {
  orFaultOnce = 0,      /* the call that met the fault */
  orFaultUntilRemoved,  /* then every call for that call's device fails as well, and so does waiting for it */
  orFaultForTheProcess, /* then every call fails as well, also after orFaultRemove: a sticky error of CUDA */
} orFaultDuration;

typedef struct orFault {
  unsigned int points;  /* orFaultPoint values, joined by | */
  int device;           /* -1: any */
  uint64_t first, last; /* which of the calls that match, counted from 1 */
  size_t minSize;       /* bytes; 0: any. Kernels, streams and events have no size, and match 0 only */
  double probability;   /* of each of these calls; 1: all. Follows from `seed` and the number of the call */
  uint64_t seed;        /* also of the bit that is flipped */
  orFaultAction action;
  orError_t error;
  orFaultDuration duration;
  double amount;
  const char* text; /* how the user wrote it, for messages; copied */
} orFault;

/* The fault waits from here on until orFaultRemove. May be called before the simulator starts. orErrorInvalidValue for a
 * field that makes no sense. */
typedef struct orInjectedFault* orInjectedFault_t;
OPENREG_EXPORT orError_t orFaultInject(orInjectedFault_t* fault, const orFault* what);

/* How many calls have matched so far, and how many of these the fault has changed. Either may be NULL. */
OPENREG_EXPORT orError_t orFaultCount(orInjectedFault_t fault, uint64_t* seen, uint64_t* fired);

/* The handle is invalid afterwards. */
OPENREG_EXPORT orError_t orFaultRemove(orInjectedFault_t fault);

/* For allocators that carve blocks out of what orMalloc gave: to be called before a block of `size` bytes is handed out. A
 * failure is a fault's; orErrorMemoryAllocation means: behave as if the device were full. Needed only if
 * orIsObserved(orActivityAllocation). */
OPENREG_EXPORT orError_t orRequestAllocation(int device, size_t size);

/* For libraries of collectives: to be called before a transfer of `size` bytes between this process and others begins. A
 * failure is a fault's, and the transfer's. `*dropped` is set to true for a message that is to be dropped: the library does
 * not begin the transfer, and calls it complete. */
OPENREG_EXPORT orError_t orRequestMessage(int device, size_t size, bool* dropped);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_FAULTS_H */
