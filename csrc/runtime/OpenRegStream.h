#pragma once

#include <c10/core/Stream.h>

#include "runtime/OpenRegFunctions.h"

// LITERALINCLUDE START: STREAM RULES
// A stream has two forms: PyTorch's c10::Stream (a device and an id), and the device's handle orStream_t. These
// functions make streams, and convert one form into the other.
//
// Rules: a stream belongs to the device on which it was made; the current device plays no part when the stream is used.
// The current stream is kept per thread and per device. Streams come from a pool of 32 per device and priority, as in
// c10/cuda/CUDAStream.h. They are handed out in turn and never destroyed. So the 33rd request gets the first stream
// again, and its two users share one queue. A Stream object is a plain value, which owns nothing.
// LITERALINCLUDE END: STREAM RULES
namespace c10::openreg {

// LITERALINCLUDE START: STREAMS
OPENREG_API Stream default_stream(DeviceIndex device);
OPENREG_API Stream current_stream(DeviceIndex device);

// Makes `stream` the calling thread's current stream of its own device; returns the previous one.
OPENREG_API Stream exchange_stream(Stream stream);

// A stream of the pool. A lower `priority` is more urgent. A priority outside the device's range becomes the nearest
// priority of the range.
OPENREG_API Stream stream_from_pool(DeviceIndex device, int priority = 0);

// The device's handle of `stream`. The handle is made at its first use. Throws if `stream` belongs to another device
// type, or if its id is neither that of the default stream nor that of a stream of the pool.
OPENREG_API orStream_t stream_handle(Stream stream);

// The stream that has this handle; null means the default stream. Throws if no function above has made the stream:
// PyTorch can use no other streams.
OPENREG_API Stream stream_of_handle(orStream_t handle, DeviceIndex device);

// A new event of the stream's device, which is not recorded yet. The caller destroys it. For `flags` see
// orEventCreateWithFlags().
OPENREG_API orEvent_t create_event(Stream stream, unsigned int flags = orEventDisableTiming);

// Later work of `stream` waits for the work that is now queued on the current stream of `device`. A null `stream` means
// the default stream of `device`.
OPENREG_API void order_after_current_stream(orStream_t stream, DeviceIndex device);
// LITERALINCLUDE END: STREAMS

// Both functions return whether a kernel runs during its launch, on the launching thread (orExecutionInline), and throw
// in a forked child. Every operator calls executes_inline(), which reads a flag. The flag is false in the other modes,
// before the device starts, and in a forked child. In these cases starts_inline() asks the device library for the mode,
// which starts the device if necessary, and throws in a forked child.
OPENREG_API bool starts_inline();
inline bool executes_inline() {
  return C10_LIKELY(__atomic_load_n(&orInlineFlag, __ATOMIC_ACQUIRE)) || starts_inline();
}

// Later work of `waiting` waits for the work that is now queued on `other`.
OPENREG_API void wait_for_stream(Stream waiting, Stream other);

// The handle of the calling thread's current stream of `device`. `device` is not checked.
OPENREG_API orStream_t current_stream_handle(DeviceIndex device);

} // namespace c10::openreg
