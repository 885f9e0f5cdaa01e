#pragma once

#include <c10/core/Stream.h>

#include "OpenRegFunctions.h"

// LITERALINCLUDE START: STREAM RULES
// A stream has two forms: PyTorch's c10::Stream (a device and an id), and the device's handle orStream_t. These
// functions make streams, and convert one form into the other.
//
// Rules: a stream belongs to the device it was made on; the current device plays no part in using it. The current
// stream is kept per thread and per device. Streams come from a pool of 32 per device and priority, handed out in turn
// and never destroyed, as c10/cuda/CUDAStream.h does it: two streams may share a queue, and a Stream object is a plain
// value.
// LITERALINCLUDE END: STREAM RULES
namespace c10::openreg {

// LITERALINCLUDE START: STREAMS
OPENREG_API Stream default_stream(DeviceIndex device);
OPENREG_API Stream current_stream(DeviceIndex device);

// Makes `stream` the calling thread's current stream of its own device; returns the previous one.
OPENREG_API Stream exchange_stream(Stream stream);

// A stream of the pool. A lower `priority` is more urgent. A priority below the device's range becomes the most urgent
// one. Throws for a positive priority.
OPENREG_API Stream stream_from_pool(DeviceIndex device, int priority = 0);

// The device's handle of `stream`. The handle is made at its first use. Throws if no function above has returned the
// stream's id.
OPENREG_API orStream_t stream_handle(Stream stream);

// The stream that has this handle; null means the default stream. Throws if no function above has made the stream:
// PyTorch can use no other.
OPENREG_API Stream stream_of_handle(orStream_t handle, DeviceIndex device);

// A new event of the stream's device, which is not recorded yet. The caller destroys it. For `flags` see
// orEventCreateWithFlags().
OPENREG_API orEvent_t create_event(Stream stream, unsigned int flags = orEventDisableTiming);

// Later work of `stream` waits for the work that is now queued on the current stream of `device`. Null means the
// default stream.
OPENREG_API void order_after_current_stream(orStream_t stream, DeviceIndex device);
// LITERALINCLUDE END: STREAMS

// Both functions return whether a kernel runs during its launch, on the launching thread (orExecutionInline), and throw
// in a forked child. Every operator calls executes_inline(). The rare case, in which the device must be started first,
// is out of line in starts_inline().
OPENREG_API bool starts_inline();
inline bool executes_inline() {
  return C10_LIKELY(__atomic_load_n(&orInlineFlag, __ATOMIC_ACQUIRE)) || starts_inline();
}

// Later work of `waiting` waits for the work that is now queued on `other`.
OPENREG_API void wait_for_stream(Stream waiting, Stream other);

// The handle of the calling thread's current stream of `device`. `device` is not checked.
OPENREG_API orStream_t current_stream_handle(DeviceIndex device);

} // namespace c10::openreg
