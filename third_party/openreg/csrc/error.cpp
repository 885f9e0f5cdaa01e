#include "error.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <utility>

#include "runtime.h"

namespace openreg {

// The details of a thread's last failure. They are on the heap, apart from LastError: every call writes LastError, and
// access to thread-local variables is fast only if the library has few of them.
struct ErrorDetails {
  std::array<char, 1024> message{};
  std::exception_ptr launchFailure; // the exception behind an orErrorLaunchFailure
};

namespace {

struct LastError {
  const char* call;
  orError_t code;
};

thread_local constinit LastError last{};
thread_local constinit ErrorDetails* lastDetails = nullptr;

// The calling thread's ErrorDetails, deleted when the thread ends. If a call fails in the destructor of another
// thread_local after that, the details are made again.
ErrorDetails& details() {
  static thread_local const struct AtThreadExit {
    ~AtThreadExit() {
      delete std::exchange(lastDetails, nullptr);
    }
  } atThreadExit;
  if (lastDetails == nullptr) {
    lastDetails = new ErrorDetails;
  }
  return *lastDetails;
}

struct ErrorText {
  orError_t code;
  const char* name;
  const char* text; // CUDA's text, with OpenReg in place of CUDA
};

constexpr ErrorText kErrorTexts[] = {
    {orSuccess, "orSuccess", "no error"},
    {orErrorInvalidValue, "orErrorInvalidValue", "invalid argument"},
    {orErrorMemoryAllocation, "orErrorMemoryAllocation", "out of memory"},
    {orErrorInitializationError, "orErrorInitializationError", "initialization error"},
    {orErrorInvalidConfiguration, "orErrorInvalidConfiguration", "invalid configuration argument"},
    {orErrorInvalidMemcpyDirection, "orErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {orErrorInsufficientDriver,
     "orErrorInsufficientDriver",
     "OpenReg driver version is insufficient for OpenReg runtime version"},
    {orErrorDevicesUnavailable, "orErrorDevicesUnavailable", "OpenReg-capable device(s) is/are busy or unavailable"},
    {orErrorNoDevice, "orErrorNoDevice", "no OpenReg-capable device is detected"},
    {orErrorInvalidDevice, "orErrorInvalidDevice", "invalid device ordinal"},
    {orErrorECCUncorrectable, "orErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {orErrorOperatingSystem, "orErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {orErrorDeviceUninitialized, "orErrorDeviceUninitialized", "invalid device context"},
    {orErrorInvalidResourceHandle, "orErrorInvalidResourceHandle", "invalid resource handle"},
    {orErrorIllegalState, "orErrorIllegalState", "the operation cannot be performed in the present state"},
    {orErrorNotReady, "orErrorNotReady", "device not ready"},
    {orErrorIllegalAddress, "orErrorIllegalAddress", "an illegal memory access was encountered"},
    {orErrorAssert, "orErrorAssert", "device-side assert triggered"},
    {orErrorHostMemoryAlreadyRegistered,
     "orErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {orErrorHostMemoryNotRegistered,
     "orErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {orErrorLaunchFailure, "orErrorLaunchFailure", "unspecified launch failure"},
    {orErrorNotPermitted, "orErrorNotPermitted", "operation not permitted"},
    {orErrorNotSupported, "orErrorNotSupported", "operation not supported"},
    {orErrorStreamCaptureUnsupported,
     "orErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {orErrorStreamCaptureInvalidated,
     "orErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {orErrorStreamCaptureMerge,
     "orErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {orErrorStreamCaptureUnmatched,
     "orErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {orErrorStreamCaptureUnjoined, "orErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {orErrorStreamCaptureIsolation,
     "orErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {orErrorStreamCaptureImplicit,
     "orErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {orErrorCapturedEvent,
     "orErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {orErrorStreamCaptureWrongThread,
     "orErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

constexpr ErrorText kUnknown{orSuccess, "unrecognized error code", "unrecognized error code"};

const ErrorText& lookUp(orError_t code) {
  for (const ErrorText& entry : kErrorTexts) {
    if (entry.code == code) {
      return entry;
    }
  }
  return kUnknown;
}

} // namespace

void enter(const char* call) {
  last.call = call;
}

void setLaunchFailure(std::exception_ptr exception) {
  details().launchFailure = std::move(exception);
}

orError_t fail(orError_t code, const char* format, ...) {
  auto& message = details().message;
  const int prefix = std::snprintf(message.data(), message.size(), "%s: ", last.call);
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message.data() + prefix, message.size() - prefix, format, arguments);
  va_end(arguments);
  last.code = code;
  return code;
}

orError_t failVerbatim(orError_t code, const char* sentence) {
  auto& message = details().message;
  std::snprintf(message.data(), message.size(), "%s", sentence);
  last.code = code;
  return code;
}

KeptError::KeptError() : call_(last.call), code_(last.code), details_(std::exchange(lastDetails, nullptr)) {}

KeptError::~KeptError() {
  last = {call_, code_};
  delete std::exchange(lastDetails, details_);
}

std::string formatBytes(size_t bytes) {
  std::array<char, 32> text;
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    std::snprintf(text.data(), text.size(), "%zu bytes", bytes);
    return text.data();
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

} // namespace openreg

using namespace openreg;

orError_t orGetApiVersion(int* version) {
  enter(__func__);
  if (version == nullptr) {
    return fail(orErrorInvalidValue, "version is NULL; pass the address of an int");
  }
  *version = OPENREG_API_VERSION;
  return orSuccess;
}

const char* orGetErrorName(orError_t error) {
  return lookUp(error).name;
}

const char* orGetErrorString(orError_t error) {
  const auto own = identity().errorString;
  const char* const text = own ? own(error) : nullptr;
  return text ? text : lookUp(error).text;
}

orError_t orGetLastError(void) {
  return std::exchange(last.code, orSuccess);
}

orError_t orPeekAtLastError(void) {
  return last.code;
}

void orRethrowLaunchFailure(void) {
  if (last.code == orErrorLaunchFailure && lastDetails != nullptr && lastDetails->launchFailure) {
    std::rethrow_exception(std::exchange(lastDetails->launchFailure, nullptr));
  }
}

const char* orGetLastErrorMessage(void) {
  return lastDetails == nullptr ? "" : lastDetails->message.data();
}
