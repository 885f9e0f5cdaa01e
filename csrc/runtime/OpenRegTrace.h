#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/GPUTrace.h>

// Tells PyTorch's tracer, on which tools such as a race detector are built (torch/cuda/_sanitizer.py), what the host
// asks of the device. Its callbacks are registered with torch.openreg._gpu_trace; until one activates it, this is one
// look at a variable.
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

// The default stream is 0, as on CUDA: PyTorch's sanitizer takes it as known.
inline uintptr_t trace_id(const Stream& stream, const void* handle) {
  return stream.id() == 0 ? 0 : trace_id(handle);
}

} // namespace c10::openreg
