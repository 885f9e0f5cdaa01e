#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/GPUTrace.h>

// Notifies PyTorch's tracer of the calls that the host makes to the device. Tools such as the race detector
// of torch.cuda are built on the tracer; torch.openreg._gpu_trace registers their callbacks. While the
// tracer is off, trace() costs one load of a variable.
namespace c10::openreg {

template <class Fn>
void trace(const Fn& fn) {
  if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter)) {
    fn(**interpreter);
  }
}

inline uintptr_t trace_id(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

// The default stream's id is 0, as on CUDA, because PyTorch's race detector expects that number.
inline uintptr_t trace_id(const Stream& stream, const void* handle) {
  return stream.id() == 0 ? 0 : trace_id(handle);
}

} // namespace c10::openreg
