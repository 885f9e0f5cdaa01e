#include "stream.h"

#include <algorithm>
#include <vector>

#include "device.h"
#include "runtime.h"
#include "scheduler.h"

namespace openreg {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -3;

// Never deleted: atexit handlers and destructors of other libraries may still use streams.
struct Streams {
  HandleTable<Stream, orStream_t> table;
  std::vector<std::shared_ptr<Stream>> defaults; // one a device
  std::vector<orStream_t> defaultHandles;
};

Streams* streams = nullptr;

orError_t create(orStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr) {
    return fail(orErrorInvalidValue, "stream is NULL; pass the address of an orStream_t");
  }
  if (flags != 0) {
    return fail(orErrorInvalidValue, "flags is %u; no flag exists, pass 0", flags);
  }
  const int clamped = std::clamp(priority, kGreatestPriority, kLeastPriority);
  *stream = streams->table.add(std::make_shared<Stream>(currentDevice(), clamped));
  return orSuccess;
}

} // namespace

void createDefaultStreams(int devices) {
  streams = new Streams();
  for (int device = 0; device < devices; ++device) {
    streams->defaults.push_back(std::make_shared<Stream>(device, kLeastPriority));
    streams->defaultHandles.push_back(streams->table.add(streams->defaults.back()));
  }
}

std::shared_ptr<Stream> resolveStream(orStream_t stream) {
  if (stream == nullptr) {
    return streams->defaults[currentDevice()];
  }
  std::shared_ptr<Stream> found = streams->table.find(stream);
  if (!found) {
    fail(orErrorInvalidResourceHandle, "stream %p does not exist; it was destroyed, or is no stream", (void*)stream);
  }
  return found;
}

} // namespace openreg

using namespace openreg;

orError_t orDeviceSynchronize(void) {
  return deviceCall(__func__, [] { return synchronizeDevice(currentDevice()); });
}

orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return deviceCall(__func__, [&] {
    // As in CUDA, either may be left out.
    if (leastPriority != nullptr) {
      *leastPriority = kLeastPriority;
    }
    if (greatestPriority != nullptr) {
      *greatestPriority = kGreatestPriority;
    }
    return orSuccess;
  });
}

orError_t orDeviceGetDefaultStream(orStream_t* stream, int device) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (stream == nullptr) {
      return fail(orErrorInvalidValue, "stream is NULL; pass the address of an orStream_t");
    }
    if (orError_t error = requireDevice("device", device); error != orSuccess) {
      return error;
    }
    *stream = streams->defaultHandles[device];
    return orSuccess;
  });
}

orError_t orStreamCreate(orStream_t* stream) {
  return deviceCall(__func__, [&] { return create(stream, 0, kLeastPriority); });
}

orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned int flags, int priority) {
  return deviceCall(__func__, [&] { return create(stream, flags, priority); });
}

orError_t orStreamGetPriority(orStream_t stream, int* priority) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (priority == nullptr) {
      return fail(orErrorInvalidValue, "priority is NULL; pass the address of an int");
    }
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    *priority = found->priority;
    return orSuccess;
  });
}

orError_t orStreamGetDevice(orStream_t stream, int* device) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (device == nullptr) {
      return fail(orErrorInvalidValue, "device is NULL; pass the address of an int");
    }
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    *device = found->device;
    return orSuccess;
  });
}

orError_t orStreamDestroy(orStream_t stream) {
  return releaseCall(__func__, [&]() -> orError_t {
    const auto& defaults = streams->defaultHandles;
    if (stream == nullptr || std::find(defaults.begin(), defaults.end(), stream) != defaults.end()) {
      return fail(orErrorInvalidResourceHandle, "a default stream cannot be destroyed");
    }
    if (!streams->table.remove(stream)) {
      return fail(
          orErrorInvalidResourceHandle, "stream %p does not exist; it was destroyed, or is no stream", (void*)stream);
    }
    return orSuccess;
  });
}

orError_t orStreamQuery(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    return isBusy(*found) ? orErrorNotReady : orSuccess;
  });
}

orError_t orStreamSynchronize(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    return found ? synchronize(found) : orErrorInvalidResourceHandle;
  });
}

namespace {

orError_t launch(orStream_t stream, Engine engine, orHostFn_t fn, void* userData, bool mayRunInline) {
  if (fn == nullptr) {
    return fail(orErrorInvalidValue, "fn is NULL; pass a function");
  }
  const auto found = resolveStream(stream);
  return found ? openreg::launch(found, {engine, fn, userData}, mayRunInline) : orErrorInvalidResourceHandle;
}

} // namespace

orError_t orLaunch(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if ((flags & ~orLaunchMayRunInline) != 0) {
      return fail(orErrorInvalidValue, "flags is %u; pass orLaunchDefault (0) or orLaunchMayRunInline (1)", flags);
    }
    return launch(stream, Engine::compute, fn, userData, flags == orLaunchMayRunInline);
  });
}

orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t fn, void* userData) {
  return deviceCall(__func__, [&] { return launch(stream, Engine::hostFunction, fn, userData, false); });
}
