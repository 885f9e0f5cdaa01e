#include "error.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <utility>

namespace openreg {
namespace {

struct LastError {
  const char* call;
  orError_t code;
  // Not a std::string: a failing call in another thread_local's destructor must still find it alive.
  std::array<char, 1024> message;
};

thread_local constinit LastError last{};

// The exception behind `last`, if it is an orErrorLaunchFailure. A pointer, which also has no destructor.
thread_local constinit std::exception_ptr* launchFailure = nullptr;

void forgetLaunchFailure() {
  delete std::exchange(launchFailure, nullptr);
}

struct ErrorText {
  orError_t code;
  const char* name;
  const char* text; // CUDA's wording
};

constexpr ErrorText kErrorTexts[] = {
    {orSuccess, "orSuccess", "no error"},
    {orErrorInvalidValue, "orErrorInvalidValue", "invalid argument"},
    {orErrorMemoryAllocation, "orErrorMemoryAllocation", "out of memory"},
    {orErrorInitializationError, "orErrorInitializationError", "initialization error"},
    {orErrorInvalidConfiguration, "orErrorInvalidConfiguration", "invalid configuration argument"},
    {orErrorInvalidMemcpyDirection, "orErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {orErrorNoDevice, "orErrorNoDevice", "no OpenReg-capable device is detected"},
    {orErrorInvalidDevice, "orErrorInvalidDevice", "invalid device ordinal"},
    {orErrorOperatingSystem, "orErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {orErrorDeviceUninitialized, "orErrorDeviceUninitialized", "invalid device context"},
    {orErrorInvalidResourceHandle, "orErrorInvalidResourceHandle", "invalid resource handle"},
    {orErrorNotReady, "orErrorNotReady", "device not ready"},
    {orErrorIllegalAddress, "orErrorIllegalAddress", "an illegal memory access was encountered"},
    {orErrorLaunchFailure, "orErrorLaunchFailure", "unspecified launch failure"},
    {orErrorNotPermitted, "orErrorNotPermitted", "operation not permitted"},
    {orErrorNotSupported, "orErrorNotSupported", "operation not supported"},
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
  static thread_local const struct AtThreadExit {
    ~AtThreadExit() {
      forgetLaunchFailure();
    }
  } atThreadExit;
  forgetLaunchFailure();
  launchFailure = new std::exception_ptr(std::move(exception));
}

orError_t fail(orError_t code, const char* format, ...) {
  const int prefix = std::snprintf(last.message.data(), last.message.size(), "%s: ", last.call);
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last.message.data() + prefix, last.message.size() - prefix, format, arguments);
  va_end(arguments);
  last.code = code;
  return code;
}

orError_t failVerbatim(orError_t code, const char* sentence) {
  std::snprintf(last.message.data(), last.message.size(), "%s", sentence);
  last.code = code;
  return code;
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
  return lookUp(error).text;
}

orError_t orGetLastError(void) {
  return std::exchange(last.code, orSuccess);
}

orError_t orPeekAtLastError(void) {
  return last.code;
}

void orRethrowLaunchFailure(void) {
  if (last.code == orErrorLaunchFailure && launchFailure != nullptr) {
    const std::exception_ptr exception = std::move(*launchFailure);
    forgetLaunchFailure();
    std::rethrow_exception(exception);
  }
}

const char* orGetLastErrorMessage(void) {
  return last.message.data();
}
