/*
 * openreg_activity: what the device does, told while it happens. A profiler, a sanitizer or a test subscribes.
 *
 * Modelled on CUPTI's callback API. Everything that reaches device memory passes here: kernels (orKernelBegin, orLaunch),
 * copies, fills, and the allocation and freeing of memory; and the calls of the host that start such work, or wait for it.
 * Without a subscriber each of them costs one branch.
 *
 * No activity has a time: `fn` is called when the activity begins and ends, so a subscriber reads the clock that the rest of
 * its report uses.
 */
#ifndef OPENREG_ACTIVITY_H
#define OPENREG_ACTIVITY_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum orActivityKind {
  orActivityKernel = 1,     /* a computation, or a collective */
  orActivityCopy = 2,       /* orMemcpy and its like; the operands are the destination and the source */
  orActivityFill = 4,       /* orMemset and its like; the operand is the destination */
  orActivityAllocation = 8, /* memory is handed out: orMalloc, or a block by orNoteAllocation */
  orActivityFree = 16,      /* memory is given back: orFree, or a block by orNoteFree */
  orActivityCall = 32, /* on the calling thread: a function that launches, copies, fills, records, or takes memory */
  orActivitySynchronization =
      64, /* on the calling thread: a function that waits for the device, or lets a stream wait */
  /* On the calling thread, in the order of the program: a kernel, copy or fill is about to be queued, with its name and
   * operands. Not told of a kernel that its own thread begins (orKernelBegin), whose orActivityKernel says the same. */
  orActivityLaunch = 128,
  orActivityHandle = 256, /* an event, a stream, pinned memory or a foreign allocation is made (begin) or goes (end) */
  orActivityUse = 512,    /* a block may be in use on `stream` when it is freed: orNoteUse */
} orActivityKind;
#define orActivityAll 0x3FFu

typedef enum orActivityPhase {
  orActivityBegin = 0,
  orActivityEnd = 1,
  orActivityPoint = 2, /* of what has no length: allocations, frees, launches, uses */
} orActivityPhase;

typedef struct orActivity {
  orActivityKind kind;
  orActivityPhase phase;
  uint64_t id; /* the same number at the begin and the end of one activity; never used again */
  int device;
  orStream_t stream; /* NULL where no single stream is meant: memory, orDeviceSynchronize */
  const char* name;  /* of a kernel: orKernel.name, or "kernel" if it has none; otherwise that of the function */
  /* The id of the orActivityCall that started this activity, as CUPTI's correlation id. 0: no call started it, which is a
   * kernel that its own thread began (orKernelBegin), or a call itself. */
  uint64_t correlation;
  bool failed; /* at the end: an exception left the kernel */
  /* What it reads and writes; NULL: not known, or told at the begin already, or failed. See orActivityVisitOperands. */
  void (*operands)(void* data, orOperandFn_t visit, void* context);
  void* data;
  /* Of a call that records, waits for or asks about an event: that event. Of orActivityHandle: what is made or goes. */
  const void* object;
} orActivity;

/* Calls `visit(operand, context)` for each operand. Only during the callback that got `activity`. */
static inline void orActivityVisitOperands(const orActivity* activity, orOperandFn_t visit, void* context) {
  if (activity->operands) {
    activity->operands(activity->data, visit, context);
  }
}

/*
 * Calls `fn(activity, userData)` for each activity whose kind is in `kinds` (orActivityKind values, joined by |), on the
 * thread that computes: a kernel's begin is told before its first byte is read, its end after its last byte is written,
 * with the stream's turn held. So `fn` must not wait for the device. It must not throw either; what it starts on the
 * device itself is not told. Several subscribers are called in the order of their subscription.
 *
 * orActivityUnsubscribe returns when `fn` runs nowhere any more, unless it is called from `fn`. Handles are used again.
 */
typedef struct orSubscriber* orSubscriber_t;
typedef void (*orActivityFn_t)(const orActivity* activity, void* userData);
OPENREG_EXPORT orError_t
orActivitySubscribe(orSubscriber_t* subscriber, orActivityFn_t fn, void* userData, unsigned int kinds);
OPENREG_EXPORT orError_t orActivityUnsubscribe(orSubscriber_t subscriber);

/* For `fn`, while it is told of the launch of work, or of the begin of a kernel that its own thread begins: the call that
 * launches, or orKernelBegin, does nothing and returns `error`. Ignored in every other activity. */
OPENREG_EXPORT void orActivityStop(orError_t error);

/* The kinds that any subscriber wants. Read it through orIsObserved(). */
OPENREG_EXPORT extern unsigned int orObservedKinds;
static inline bool orIsObserved(orActivityKind kind) {
  return __builtin_expect((__atomic_load_n(&orObservedKinds, __ATOMIC_RELAXED) & (unsigned int)kind) != 0, 0);
}

/* For allocators that carve blocks out of what orMalloc gave: tells of a block that is handed out for use on `stream`, or
 * given back. Nothing else follows from it. */
OPENREG_EXPORT void orNoteAllocation(const void* devPtr, size_t size, orStream_t stream);
OPENREG_EXPORT void orNoteFree(const void* devPtr, size_t size, orStream_t stream);
/* The block that begins at `devPtr` is used on `stream` too: when it is given back, the allocator keeps it until what is
 * queued there by then has run. */
OPENREG_EXPORT void orNoteUse(const void* devPtr, orStream_t stream);
/* The host knows that the work of `stream`, or what came before the last record of `event`, is done, although no function
 * of openreg.h has waited: a kernel computed on the calling thread and the host reads its result, or a query said so. An
 * orActivitySynchronization, as a point. Either may be NULL. */
OPENREG_EXPORT void orNoteWait(orStream_t stream, orEvent_t event);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_ACTIVITY_H */
