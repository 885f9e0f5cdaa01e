#pragma once

#include <c10/util/Exception.h>
#include <openreg.h>

#define OPENREG_API __attribute__((visibility("default")))

// From error codes of the device's C API to C++ exceptions, which PyTorch turns into Python's.
namespace c10::openreg {

// Out of line: the error path stays off the hot path.
[[noreturn]] OPENREG_API void throw_error(orError_t error, const char* call);

// Sets what throw_error() calls first. An observer of the device that stopped a call (orActivityStop) throws there its own
// exception instead of the call's error; the handler returns if no observer stopped the call.
OPENREG_API void set_stop_handler(void (*handler)());

} // namespace c10::openreg

// Turns a failed call of the device's C API into the exception that PyTorch's users expect. Out of memory becomes
// torch.OutOfMemoryError, what the device cannot do NotImplementedError, everything else RuntimeError.
#define OPENREG_CHECK(CALL)                       \
  do {                                            \
    const orError_t error_ = (CALL);              \
    if (C10_UNLIKELY(error_ != orSuccess)) {      \
      ::c10::openreg::throw_error(error_, #CALL); \
    }                                             \
  } while (false)
