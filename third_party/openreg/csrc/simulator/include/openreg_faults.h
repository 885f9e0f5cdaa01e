/*
 * openreg_faults: makes calls of the device fail on purpose. A test lets an allocation fail, delays a copy, or loses a
 * device, and looks at what the program does then.
 *
 * A fault is set at one or more *points* (orFaultPoint). A point is one kind of call or work: every call and all work
 * of that kind passes the point, in every execution mode; only work that a subscriber starts does not. If no fault is
 * set, the points of kernels, copies, fills and allocations cost nothing: they share the branch of the activities in
 * openreg_activity.h.
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
  orFaultAtKernel = 8,         /* a kernel begins: orKernelBegin (not inside another kernel), orLaunch */
  orFaultAtCopy = 16,          /* a copy begins to run */
  orFaultAtFill = 32,          /* orMemset or orMemsetAsync begins to run */
  orFaultAtStream = 64,        /* a stream is made, or taken from a pool: orRequestStream */
  orFaultAtEvent = 128,        /* an event is made */
  orFaultAtIpc = 256,          /* orIpcOpenMemHandle, orIpcOpenEventHandle */
  orFaultAtStart = 512,        /* the simulator starts, or counts its devices before it starts */
  orFaultAtMessage = 1024,     /* a transfer to other processes begins: orRequestMessage */
  orFaultAtLaunch = 2048,      /* a kernel is launched or begins; that call returns the failure, in every mode */
} orFaultPoint;
#define orFaultAnywhere 0xFFFu

typedef enum orFaultAction {
  /* The call returns `error`. But if a kernel of orLaunch, a copy or a fill gets the fault when it begins, it still
   * runs; afterwards `error` is the failure of its stream, and nobody may rely on what it wrote. */
  orFaultFails = 0,
  orFaultDelays = 1, /* the call, or the stream, sleeps for `amount` nanoseconds first */
  orFaultSlows = 2,  /* a kernel, copy or fill takes `amount` times as long; `amount` is at least 1 */
  orFaultFlips = 3,  /* a copy or fill inverts one bit of what it wrote */
  orFaultDrops = 4,  /* a message is never sent, and its sender gets no error */
  orFaultKills = 5,  /* the process ends with SIGKILL */
} orFaultAction;

typedef enum orFaultDuration {
  orFaultOnce = 0,      /* only the call that the fault changes fails */
  orFaultUntilRemoved,  /* the device is lost: every later call that passes a point on it, or waits for it, fails */
  orFaultForTheProcess, /* the same for all devices, even after orFaultRemove, as after a sticky error of CUDA */
} orFaultDuration;

typedef struct orFault {
  unsigned int points;  /* orFaultPoint values, joined by | */
  int device;           /* -1: any device */
  uint64_t first, last; /* the range of matching calls that the fault changes, counted from 1 */
  size_t minSize;       /* bytes; a smaller call does not match. Kernels, streams and events have size 0 */
  double probability;   /* that a matching call is changed; 1: always. Depends on `seed` and the call's number only */
  uint64_t seed;        /* of `probability`, and of the bit that is inverted */
  orFaultAction action;
  orError_t error;
  orFaultDuration duration;
  double amount;
  const char* text; /* the fault in the user's words, for messages; copied */
} orFault;

/* Adds a fault, until orFaultRemove. May be called before the simulator starts. Returns orErrorInvalidValue if a member
 * is not valid. */
typedef struct orInjectedFault* orInjectedFault_t;
OPENREG_EXPORT orError_t orFaultInject(orInjectedFault_t* fault, const orFault* what);

/* Counts the calls that have matched so far (`seen`), and those among them that the fault has changed (`fired`). Either
 * may be NULL. */
OPENREG_EXPORT orError_t orFaultCount(orInjectedFault_t fault, uint64_t* seen, uint64_t* fired);

/* Removes the fault. Its handle is not valid any more. */
OPENREG_EXPORT orError_t orFaultRemove(orInjectedFault_t fault);

/* For allocators that divide memory of orMalloc into blocks: to be called before a block of `size` bytes is allocated.
 * A failure comes from a fault; for orErrorMemoryAllocation the allocator behaves as if the device were full. The call
 * may be left out unless orIsObserved(orActivityAllocation). */
OPENREG_EXPORT orError_t orRequestAllocation(int device, size_t size);

/* For libraries that keep streams in a pool: to be called when a stream that exists already is taken from the pool in
 * place of a new one. A failure comes from a fault. */
OPENREG_EXPORT orError_t orRequestStream(int device);

/* For libraries of collectives: to be called before a transfer of `size` bytes between this process and others. A
 * failure comes from a fault, and the transfer fails with it. `*dropped` is set to true if the message is to be
 * dropped: then the library does not begin the transfer, and reports it as complete. Otherwise `*dropped` may stay
 * unchanged, so the caller sets it to false before. */
OPENREG_EXPORT orError_t orRequestMessage(int device, size_t size, bool* dropped);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_FAULTS_H */
