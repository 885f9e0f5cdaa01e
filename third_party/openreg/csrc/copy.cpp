#include <cstring>

#include "pointer.h"
#include "runtime.h"
#include "stream.h"
#include "windows.h"

namespace openreg {
namespace {

// A range must stay within the allocation it begins in; of unregistered host memory nothing is known.
orError_t checkRange(const char* parameter, const void* ptr, const Place& place, size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  if (address == 0) {
    return fail(orErrorInvalidValue, "%s is NULL, but %zu bytes are to be accessed", parameter, size);
  }
  if (place.type == orMemoryTypeUnregistered) {
    return orSuccess;
  }
  if (place.begin == 0) {
    return fail(
        orErrorInvalidValue,
        "%s (%p) lies in no allocation of device %d: it was freed, or is past the end of one",
        parameter,
        ptr,
        place.device);
  }
  const size_t offset = address - place.begin;
  if (size > place.size - offset) {
    return fail(
        orErrorInvalidValue,
        "%zu bytes at %s (%p) leave its allocation, which has %zu bytes, %zu of them from there on",
        size,
        parameter,
        ptr,
        place.size,
        place.size - offset);
  }
  return orSuccess;
}

const char* describe(const Place& place) {
  return place.type == orMemoryTypeDevice ? "device" : "host";
}

orError_t checkKind(const Place& dst, const Place& src, orMemcpyKind kind) {
  if (kind == orMemcpyDefault) {
    return orSuccess;
  }
  const bool toDevice = kind == orMemcpyHostToDevice || kind == orMemcpyDeviceToDevice;
  const bool fromDevice = kind == orMemcpyDeviceToHost || kind == orMemcpyDeviceToDevice;
  if (toDevice == (dst.type == orMemoryTypeDevice) && fromDevice == (src.type == orMemoryTypeDevice)) {
    return orSuccess;
  }
  constexpr const char* kNames[] = {
      "orMemcpyHostToHost", "orMemcpyHostToDevice", "orMemcpyDeviceToHost", "orMemcpyDeviceToDevice"};
  return fail(
      orErrorInvalidMemcpyDirection,
      "kind is %s, but dst is %s memory and src is %s memory; orMemcpyDefault takes the direction from the pointers",
      kNames[kind],
      describe(dst),
      describe(src));
}

orError_t copy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  if (kind < orMemcpyHostToHost || kind > orMemcpyDefault) {
    return fail(orErrorInvalidMemcpyDirection, "kind is %d, which is no orMemcpyKind (0 to 4)", kind);
  }
  if (size == 0) {
    return orSuccess;
  }
  const Place to = locate(dst);
  const Place from = locate(src);
  if (orError_t error = checkRange("dst", dst, to, size); error != orSuccess) {
    return error;
  }
  if (orError_t error = checkRange("src", src, from, size); error != orSuccess) {
    return error;
  }
  if (orError_t error = checkKind(to, from, kind); error != orSuccess) {
    return error;
  }
  // Overlapping ranges are undefined in CUDA; here they cost nothing to get right.
  std::memmove(orGetKernelPointer(dst), orGetKernelPointer(src), size);
  return orSuccess;
}

orError_t set(void* devPtr, int value, size_t size) {
  if (size == 0) {
    return orSuccess;
  }
  const Place place = locate(devPtr);
  if (orError_t error = checkRange("devPtr", devPtr, place, size); error != orSuccess) {
    return error;
  }
  if (place.type == orMemoryTypeUnregistered) {
    return fail(
        orErrorInvalidValue, "devPtr (%p) is ordinary host memory; the device sets its own and pinned memory", devPtr);
  }
  std::memset(orGetKernelPointer(devPtr), value, size);
  return orSuccess;
}

// Queues `work` on a stream; `wait` also waits for it and returns the failure of work queued earlier.
template <typename Work>
orError_t queue(orStream_t stream, bool wait, Work&& work) {
  const auto found = resolveStream(stream);
  if (!found) {
    return orErrorInvalidResourceHandle;
  }
  if (orError_t error = work(); error != orSuccess) {
    return error;
  }
  return wait ? synchronize(*found) : orSuccess;
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  return deviceCall(__func__, [&] { return queue(nullptr, true, [&] { return copy(dst, src, size, kind); }); });
}

orError_t orMemset(void* devPtr, int value, size_t size) {
  return deviceCall(__func__, [&] { return queue(nullptr, true, [&] { return set(devPtr, value, size); }); });
}

orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream) {
  return deviceCall(__func__, [&] { return queue(stream, false, [&] { return copy(dst, src, size, kind); }); });
}

orError_t orMemsetAsync(void* devPtr, int value, size_t size, orStream_t stream) {
  return deviceCall(__func__, [&] { return queue(stream, false, [&] { return set(devPtr, value, size); }); });
}
