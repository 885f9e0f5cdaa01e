#pragma once

#include <c10/core/Stream.h>

#include "runtime/OpenRegFunctions.h"

// LITERALINCLUDE START: STREAM RULES
// A stream has two forms: PyTorch's c10::Stream (a device and an id), and the device's handle orStream_t. OpenRegStream
// is a c10::Stream of this device type, which knows its handle. Classes and functions have the names and the meaning of
// those in c10/cuda/CUDAStream.h.
//
// Rules: a stream belongs to the device on which it was made; the current device plays no part when the stream is used.
// The current stream is kept per thread and per device. Streams come from a pool of 32 per device and priority. They are
// handed out in turn and never destroyed. So the 33rd request gets the first stream again, and its two users share one
// queue. An OpenRegStream is a plain value, which owns nothing.
// LITERALINCLUDE END: STREAM RULES
namespace c10::openreg {

// LITERALINCLUDE START: STREAMS
class OPENREG_API OpenRegStream {
 public:
  // Throws if `stream` belongs to another device type, or if its id is neither that of the default stream nor that of a
  // stream of the pool.
  explicit OpenRegStream(Stream stream);

  enum Unchecked { UNCHECKED };
  OpenRegStream(Unchecked, Stream stream) : stream_(stream) {}

  // The device's handle. It is made at its first use.
  orStream_t stream() const;
  operator orStream_t() const {
    return stream();
  }
  Stream unwrap() const {
    return stream_;
  }
  operator Stream() const {
    return stream_;
  }

  StreamId id() const {
    return stream_.id();
  }
  Device device() const {
    return stream_.device();
  }
  DeviceIndex device_index() const {
    return stream_.device_index();
  }
  bool operator==(const OpenRegStream& other) const {
    return stream_ == other.stream_;
  }

  bool query() const {
    return stream_.query();
  }
  void synchronize() const {
    stream_.synchronize();
  }
  int priority() const;

 private:
  Stream stream_;
};

// In these functions a negative `device` means the current device.
OPENREG_API OpenRegStream getDefaultOpenRegStream(DeviceIndex device = -1);
OPENREG_API OpenRegStream getCurrentOpenRegStream(DeviceIndex device = -1);
// The handle of getCurrentOpenRegStream(device), in fewer instructions: every kernel and every allocation asks for it.
OPENREG_API orStream_t current_stream_handle(DeviceIndex device);

// Makes `stream` the calling thread's current stream of its own device. The current device stays.
OPENREG_API void setCurrentOpenRegStream(OpenRegStream stream);

// A stream of the pool. A lower `priority` is more urgent. A priority outside the device's range becomes the nearest
// priority of the range.
OPENREG_API OpenRegStream getStreamFromPool(int priority, DeviceIndex device = -1);

// The stream that has this handle; null means the default stream. Throws if no function above has made the stream:
// PyTorch can use no other streams.
OPENREG_API OpenRegStream getStreamFromExternal(orStream_t handle, DeviceIndex device);

// A new event of the stream's device, which is not recorded yet. The caller destroys it. For `flags` see
// orEventCreateWithFlags().
OPENREG_API orEvent_t create_event(Stream stream, unsigned int flags = orEventDisableTiming);

// Later work of `stream` waits for the work that is now queued on the current stream of `device`. A null `stream` means
// the default stream of `device`.
OPENREG_API void order_after_current_stream(orStream_t stream, DeviceIndex device);
// LITERALINCLUDE END: STREAMS

// Both functions return whether a kernel runs during its launch, on the launching thread (orExecutionInline), and throw
// in a forked child. Every operator calls executes_inline(), which reads a flag. The flag is false in the other modes,
// before the device starts, and in a forked child. In these cases start_and_query_inline() asks the device library for
// the mode, which starts the device if necessary, and throws in a forked child.
OPENREG_API bool start_and_query_inline();
inline bool executes_inline() {
  return C10_LIKELY(__atomic_load_n(&orInlineFlag, __ATOMIC_ACQUIRE)) || start_and_query_inline();
}

// Later work of `waiting` waits for the work that is now queued on `other`.
OPENREG_API void wait_for_stream(Stream waiting, Stream other);

} // namespace c10::openreg
