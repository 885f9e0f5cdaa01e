#pragma once

#include <c10/core/Stream.h>

#include "OpenRegFunctions.h"

// LITERALINCLUDE START: STREAM RULES
// Streams as PyTorch names them (c10::Stream: a device and an id) and as the device knows them (orStream_t).
//
// Rules: a stream belongs to the device it was made on; the current device plays no part in using it. The current stream
// is kept per thread and per device. Streams come from a pool of 32 per device and priority, handed out in turn and never
// destroyed, as c10/cuda/CUDAStream.h does it: two streams may share a queue, and a Stream object is a plain value.
// LITERALINCLUDE END: STREAM RULES
namespace c10::openreg {

// LITERALINCLUDE START: STREAMS
OPENREG_API Stream default_stream(DeviceIndex device);
OPENREG_API Stream current_stream(DeviceIndex device);

// Makes `stream` the calling thread's current stream of its own device; returns the previous one.
OPENREG_API Stream exchange_stream(Stream stream);

// A stream of the pool. Lower numbers are more urgent; the priority is moved into the device's range.
OPENREG_API Stream stream_from_pool(DeviceIndex device, int priority = 0);

// The device's own handle, made at first use. Throws for an id that no function above has given out.
OPENREG_API orStream_t stream_handle(Stream stream);

// The stream that has this handle; null is the default stream. Throws if it is none of the streams above: PyTorch can use
// no other.
OPENREG_API Stream stream_of_handle(orStream_t handle, DeviceIndex device);

// A new event of the stream's device, not yet recorded; the caller destroys it. `flags` as orEventCreateWithFlags().
OPENREG_API orEvent_t create_event(Stream stream, unsigned int flags = orEventDisableTiming);

// What the device runs on `stream` from now on, waits for what is queued on the current stream of `device`. A null
// `stream` is the default one.
OPENREG_API void order_after_current_stream(orStream_t stream, DeviceIndex device);
// LITERALINCLUDE END: STREAMS

// Whether kernels run at their launch, on the launching thread (orExecutionInline). Refuses a forked child. Asked at
// every operator, so what starts the device or refuses is apart.
OPENREG_API bool starts_inline();
inline bool executes_inline() {
  return C10_LIKELY(__atomic_load_n(&orInlineFlag, __ATOMIC_ACQUIRE)) || starts_inline();
}

// Later work of `waiting` waits for what is queued on `other` now.
OPENREG_API void wait_for_stream(Stream waiting, Stream other);

// The handle of the calling thread's current stream of `device`, which exists.
OPENREG_API orStream_t current_stream_handle(DeviceIndex device);

} // namespace c10::openreg
