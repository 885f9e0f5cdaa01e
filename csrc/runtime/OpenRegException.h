#pragma once

#include <c10/util/Exception.h>
#include <openreg.h>

#define OPENREG_API __attribute__((visibility("default")))

// Turns error codes of the device's C API into C++ exceptions. PyTorch turns these into Python's exceptions.
namespace c10::openreg {

// Throws the exception for `error`, which the C function `call` returned. Out of line, because errors are rare and the
// check is inlined in many places.
[[noreturn]] OPENREG_API void throw_error(orError_t error, const char* call);

} // namespace c10::openreg

// Turns a failed call of the device's C API into the exception that PyTorch's users expect. Out of memory becomes
// torch.OutOfMemoryError, and a call that the device does not support becomes NotImplementedError. For the failure of a
// kernel, the kernel's own exception is thrown. Every other error becomes RuntimeError, mostly torch.AcceleratorError.
#define OPENREG_CHECK(CALL)                       \
  do {                                            \
    const orError_t error_ = (CALL);              \
    if (C10_UNLIKELY(error_ != orSuccess)) {      \
      ::c10::openreg::throw_error(error_, #CALL); \
    }                                             \
  } while (false)
