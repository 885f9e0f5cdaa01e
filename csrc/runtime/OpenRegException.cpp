#include "runtime/OpenRegException.h"

#include "runtime/OpenRegObserver.h"

#include "runtime/OpenRegIdentity.h"

namespace c10::openreg {

void throw_error(orError_t error, const char* call) {
  if (RuntimeObserver* const known = observer()) {
    known->after_failed_call(); // it may have stopped the call (orActivityStop), and then throws an error of its own
  }
  if (error == orErrorLaunchFailure) {
    try {
      // Rethrows the exception of the kernel or host function, with the exception's type; returns if there is none.
      orRethrowLaunchFailure();
    } catch (...) {
      orGetLastError(); // clears the error: it is reported now, and only once
      throw;
    }
  }
  // If a C call of this thread just failed with `error`, its message says more. Some callers pass a code of their own,
  // which has only the general text.
  const std::string message = orPeekAtLastError() == error ? orGetLastErrorMessage() : orGetErrorString(error);
  orGetLastError(); // clears the error: it is reported now, and only once
  switch (error) {
    case orErrorMemoryAllocation:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case orErrorInsufficientDriver:
      TORCH_CHECK(false, identity.old_driver, message);
    case orErrorNotSupported:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case orErrorInitializationError:
      TORCH_CHECK(
          false,
          "Cannot re-initialize ",
          identity.name,
          " in forked subprocess. To use ",
          identity.name,
          " with multiprocessing, you must use the 'spawn' start method");
    case orErrorInvalidConfiguration:
      TORCH_CHECK(false, message);
    default:
      throw c10::AcceleratorError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
          static_cast<int32_t>(error),
          c10::str(identity.name, " error: ", message, " (", orGetErrorName(error), " from ", call, ")"));
  }
}

} // namespace c10::openreg
