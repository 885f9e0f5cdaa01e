#pragma once

#include <c10/core/Stream.h>

#include "OpenRegFunctions.h"

// Streams as PyTorch names them (c10::Stream: a device and an id) and as the device knows them (orStream_t).
//
// Rules: a stream belongs to the device it was made on; the current device plays no part in using it. The current stream
// is kept per thread and per device. Streams come from a pool of 32 per device and priority, handed out in turn and never
// destroyed, as c10/cuda/CUDAStream.h does it: two streams may share a queue, and a Stream object is a plain value.
namespace c10::openreg {

OPENREG_API Stream default_stream(DeviceIndex device);
OPENREG_API Stream current_stream(DeviceIndex device);

// Makes `stream` the calling thread's current stream of its own device; returns the previous one.
OPENREG_API Stream exchange_stream(Stream stream);

// A stream of the pool. Lower numbers are more urgent; the priority is moved into the device's range.
OPENREG_API Stream stream_from_pool(DeviceIndex device, int priority = 0);

// The device's own handle, made at first use. Throws for an id that no function above has given out.
OPENREG_API orStream_t stream_handle(Stream stream);

// A new event of the stream's device, not yet recorded; the caller destroys it. `flags` as orEventCreateWithFlags().
OPENREG_API orEvent_t create_event(Stream stream, unsigned int flags = orEventDisableTiming);

// Waits for what is queued on the current stream of `device`: the kernels of PyTorch's operators run on the calling thread,
// in the stream's order. Nothing to wait for while the device executes inline. Refuses a forked child.
OPENREG_API void drain_current_stream(DeviceIndex device);

} // namespace c10::openreg
