/*
 * openreg_activity: notifies subscribers of what the device does, while it happens. Profilers, sanitizers and tests
 * subscribe.
 *
 * The interface follows CUPTI's callback API. Everything that reaches device memory is an activity: kernels
 * (orKernelBegin, orLaunch), copies, fills, and the allocation and freeing of memory. The calls of the host that start
 * such work or wait for it are activities too. Without a subscriber each activity costs one branch.
 *
 * An activity carries no time. A subscriber is called when the activity begins and when it ends, and reads the clock
 * that the rest of its report uses.
 */
#ifndef OPENREG_ACTIVITY_H
#define OPENREG_ACTIVITY_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum orActivityKind {
  orActivityKernel = 1,     /* a computation, or a collective */
  orActivityCopy = 2,       /* orMemcpy and the other copies; the operands are the destination and the source */
  orActivityFill = 4,       /* orMemset and orMemsetAsync; the operand is the destination */
  orActivityAllocation = 8, /* memory is allocated: by orMalloc, or a block by orNoteAllocation */
  orActivityFree = 16,      /* memory is freed: by orFree, or a block by orNoteFree */
  /* On the calling thread: a function launches, copies, fills, records an event, allocates or frees. */
  orActivityCall = 32,
  orActivitySynchronization = 64, /* on the calling thread: a function waits for the device, or makes a stream wait */
  /* On the calling thread, in the order of the program: a kernel, copy or fill is about to be queued. The name and the
   * operands are those of the work. A kernel of orKernelBegin has no such activity, because its orActivityKernel is
   * reported on the calling thread already. */
  orActivityLaunch = 128,
  orActivityHandle = 256, /* an event, stream, pinned memory or opened IPC memory is made (begin) or destroyed (end) */
  /* A block is used on `stream` too (orNoteUse). If `stream` is NULL, others may use and write the block: another
   * process (orIpcGetMemHandle), or a program that has the address (orMemoryUnprotect). */
  orActivityUse = 512,
} orActivityKind;
#define orActivityAll 0x3FFu

typedef enum orActivityPhase {
  orActivityBegin = 0,
  orActivityEnd = 1,
  orActivityPoint = 2, /* the activity has no length: allocations, frees, launches, uses, orNoteWait */
} orActivityPhase;

typedef struct orActivity {
  orActivityKind kind;
  orActivityPhase phase;
  uint64_t id; /* the begin and the end of one activity have the same number, and no other activity has it */
  int device;
  orStream_t stream; /* NULL if the activity belongs to no single stream: orMalloc, orDeviceSynchronize */
  /* For a kernel orKernel.name, or "kernel" if that is NULL; for a copy "memcpy"; for a fill "memset". The
   * orActivityLaunch of the work has the same name. Otherwise the name of the function. */
  const char* name;
  /* The id of the orActivityCall that started this activity, as CUPTI's correlation id. 0 if no call started it (the
   * activity is a kernel of orKernelBegin, or a call itself), or if no subscriber observes calls. */
  uint64_t correlation;
  bool failed; /* at the end of a kernel, copy or fill: an exception left it */
  /* Visits the memory that the activity reads and writes; call it through orActivityVisitOperands. NULL: the operands
   * are not known, or were named at the begin, or the activity failed. */
  void (*operands)(void* data, orOperandFn_t visit, void* context);
  void* data;
  /* For a call that records or waits for an event, and for orNoteWait: the event. For orActivityHandle: the object that
   * is made or destroyed. Otherwise NULL. */
  const void* object;
} orActivity;

/* Calls `visit(operand, context)` for each operand. Valid only during the callback that received `activity`. */
static inline void orActivityVisitOperands(const orActivity* activity, orOperandFn_t visit, void* context) {
  if (activity->operands) {
    activity->operands(activity->data, visit, context);
  }
}

/*
 * orActivitySubscribe: from now on, `fn(activity, userData)` is called for each activity whose kind is in `kinds`,
 * which are orActivityKind values joined by |. Several subscribers are called in the order of their subscription.
 *
 * `fn` runs on the thread that does the work, which has the stream's turn: the begin of a kernel is reported before its
 * first byte is read, and the end after its last byte is written. Therefore `fn` must not wait for the device, nor for
 * a lock that another thread holds while it waits for the device: Python's global interpreter lock is such a lock.
 * `fn` must not throw. Work that `fn` itself starts on the device is not reported. Returns orErrorInvalidValue for
 * `kinds` that are not valid.
 *
 * orActivityUnsubscribe: waits until no thread is in `fn` any more, unless it is called from `fn`. The handle may then
 * be given to another subscriber. Returns orErrorInvalidResourceHandle if the subscriber does not exist.
 */
typedef struct orSubscriber* orSubscriber_t;
typedef void (*orActivityFn_t)(const orActivity* activity, void* userData);
OPENREG_EXPORT orError_t
orActivitySubscribe(orSubscriber_t* subscriber, orActivityFn_t fn, void* userData, unsigned int kinds);
OPENREG_EXPORT orError_t orActivityUnsubscribe(orSubscriber_t subscriber);

/* Stops the work that is about to begin: the launching call, or orKernelBegin, does nothing and returns `error`. To be
 * called by `fn` during an orActivityLaunch, or during the begin of a kernel of orKernelBegin. Ignored in every other
 * activity. */
OPENREG_EXPORT void orActivityStop(orError_t error);

/* How many kernels (orKernelBegin) the calling thread is in, plus the functions that it runs for streams (orLaunch,
 * orLaunchHostFunc). 0: the thread's own work. The begin and the end of an orActivityKernel are reported within the
 * kernel, but the end of work that another thread completes is not. */
OPENREG_EXPORT int orKernelDepth(void);

/* The kinds of all subscribers together. Read it through orIsObserved(). */
OPENREG_EXPORT extern unsigned int orObservedKinds;
static inline bool orIsObserved(orActivityKind kind) {
  return __builtin_expect((__atomic_load_n(&orObservedKinds, __ATOMIC_RELAXED) & (unsigned int)kind) != 0, 0);
}

/* For allocators that divide memory of orMalloc into blocks: notifies subscribers that a block is allocated for use on
 * `stream`, or freed. The functions have no other effect. */
OPENREG_EXPORT void orNoteAllocation(const void* devPtr, size_t size, orStream_t stream);
OPENREG_EXPORT void orNoteFree(const void* devPtr, size_t size, orStream_t stream);
/* Notifies subscribers that the block at `devPtr` is used on `stream` too, which must not be NULL. When such a block is
 * freed, its allocator does not reuse it before the work that is then queued on `stream` has run. */
OPENREG_EXPORT void orNoteUse(const void* devPtr, orStream_t stream);
/* Notifies subscribers that the host knows that work is done, although no function of openreg.h has waited for it: a
 * kernel computed on the calling thread and the host reads its result, or a query returned orSuccess. The work is that
 * of `stream`, or all work before the last record of `event`; either may be NULL. The activity is an
 * orActivitySynchronization, as a point. */
OPENREG_EXPORT void orNoteWait(orStream_t stream, orEvent_t event);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_ACTIVITY_H */
