/*
 * openreg_progress: schedules by name, and when the device runs work for an event that is asked or waited for.
 */
#ifndef OPENREG_PROGRESS_H
#define OPENREG_PROGRESS_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* (optional) Finds what a value of OPENREG_EXECUTION stands for, for orSetExecutionMode. Starts nothing.
 *   inline, async, chaos  the mode of this name; `seed` stays as it is
 *   early                 every item as early as possible: orExecutionInline
 *   late                  every item as late as the host allows: orExecutionChaos with the seed 0
 *   random:SEED           a random order: orExecutionChaos with this seed, 1 to 2^64-1
 * Returns orErrorInvalidValue for another name. Default: only the names of modes exist. */
OPENREG_EXPORT orError_t orFindExecution(const char* name, orExecutionMode* mode, uint64_t* seed);

/* In orExecutionChaos the device runs only what somebody waits for; in the other modes the next functions change
 * nothing. */

/* (optional) As orEventQuery, but no work runs. In orExecutionChaos every second query of a stream's work lets one item
 * run, because a program may poll. An allocator asks with this function: its questions must not change when the
 * program's work runs. For an event of this process only. Default: orEventQuery. */
OPENREG_EXPORT orError_t orEventPeek(orEvent_t event);

/* (optional) Lets the device run what the last record of the event waits for, and returns at once. For a caller that
 * then waits in another way than with orEventSynchronize, such as with a time limit. Default: does nothing. */
OPENREG_EXPORT orError_t orEventFlush(orEvent_t event);

/* (optional) Sets `count` to the number of items that the device has run so far because of the time: nobody waited for
 * them, and every thread of the process was blocked, or a query waited for too long. If the number is not 0, the order of
 * work does not follow from the schedule alone. Default: 0. */
OPENREG_EXPORT orError_t orGetForcedCount(uint64_t* count);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_PROGRESS_H */
