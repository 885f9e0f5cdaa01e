/*
 * openreg_dry: dry execution. No kernel touches most of the device's memory, so the memory is address space only, and a
 * device may be larger than the host. The library keeps what the bytes of the devices contain; who runs kernels asks
 * before a kernel runs, and marks what the kernel has written or would have written.
 */
#ifndef OPENREG_DRY_H
#define OPENREG_DRY_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* What bytes contain. Of two ranges, the higher value counts. */
typedef enum orContents {
  orContentsKnown = 0,   /* what the program computed; the contents of bytes that were never marked */
  orContentsAssumed = 1, /* real bytes that stand for a value which nobody computed, or that were computed from them */
  orContentsAbsent = 2,  /* nothing: the kernel that writes them was skipped */
} orContents;

/* From now on, the host need not be able to back the memory that orMalloc hands out. Lasts until the process ends. */
OPENREG_EXPORT void orDryStart(void);

/* From now on, orEventElapsedTime returns simulated time: the difference of the events' times, which `timeOf` returns in
 * seconds. Lasts until the process ends. */
typedef double (*orEventTimeFn_t)(orEvent_t event);
OPENREG_EXPORT void orDrySetEventTime(orEventTimeFn_t timeOf);

/* Notes what `size` bytes of device memory contain. */
OPENREG_EXPORT void orDryMark(const void* devPtr, size_t size, orContents contents);

/* What `size` bytes of device memory contain: the highest value in the range. */
OPENREG_EXPORT orContents orDryContents(const void* devPtr, size_t size);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_DRY_H */
