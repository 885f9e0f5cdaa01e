#include "stream.h"

#include <cxxabi.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "device.h"
#include "runtime.h"

namespace openreg {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -3;

// The first failure of a stream since the last one that was reported. It holds the stream: the device still reports it
// when the stream is gone.
struct Failure {
  std::shared_ptr<Stream> stream;
  std::string reason;
};

// Never deleted: atexit handlers and destructors of other libraries may still use streams.
struct Streams {
  HandleTable<Stream, orStream_t> table;
  std::vector<std::shared_ptr<Stream>> defaults; // one a device
  std::vector<orStream_t> defaultHandles;
  std::mutex mutex;
  std::vector<Failure> failures; // in the order in which they happened
};

Streams* streams = nullptr;

void recordFailure(std::shared_ptr<Stream> stream, std::string reason) {
  const std::lock_guard lock(streams->mutex);
  for (const Failure& failure : streams->failures) {
    if (failure.stream == stream) {
      return;
    }
  }
  streams->failures.push_back({std::move(stream), std::move(reason)});
}

// Returns the first failure whose stream matches, and forgets it.
template <typename Matches>
orError_t reportFailure(Matches&& matches) {
  const std::lock_guard lock(streams->mutex);
  const auto it = std::find_if(streams->failures.begin(), streams->failures.end(), [&](const Failure& failure) {
    return matches(*failure.stream);
  });
  if (it == streams->failures.end()) {
    return orSuccess;
  }
  const Failure failure = std::move(*it);
  streams->failures.erase(it);
  return fail(
      orErrorLaunchFailure,
      "a function launched earlier on a stream of device %d failed: %s. The device is usable; what the function should "
      "have written is not",
      failure.stream->device,
      failure.reason.c_str());
}

orError_t create(orStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr) {
    return fail(orErrorInvalidValue, "stream is NULL; pass the address of an orStream_t");
  }
  if (flags != 0) {
    return fail(orErrorInvalidValue, "flags is %u; no flag exists, pass 0", flags);
  }
  const int clamped = std::clamp(priority, kGreatestPriority, kLeastPriority);
  *stream = streams->table.add(std::make_shared<Stream>(Stream{currentDevice(), clamped}));
  return orSuccess;
}

} // namespace

void createDefaultStreams(int devices) {
  streams = new Streams();
  for (int device = 0; device < devices; ++device) {
    streams->defaults.push_back(std::make_shared<Stream>(Stream{device, kLeastPriority}));
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

orError_t synchronize(const Stream& stream) {
  return reportFailure([&](const Stream& failed) { return &failed == &stream; });
}

} // namespace openreg

using namespace openreg;

orError_t orDeviceSynchronize(void) {
  return deviceCall(__func__, [] {
    return reportFailure([device = currentDevice()](const Stream& failed) { return failed.device == device; });
  });
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
    return found ? synchronize(*found) : orErrorInvalidResourceHandle;
  });
}

orError_t orStreamSynchronize(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    return found ? synchronize(*found) : orErrorInvalidResourceHandle;
  });
}

orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t fn, void* userData) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (fn == nullptr) {
      return fail(orErrorInvalidValue, "fn is NULL; pass a function");
    }
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    try {
      fn(userData);
    } catch (const abi::__forced_unwind&) {
      throw; // pthread_exit or pthread_cancel: CPython ends threads so at interpreter exit, and it must not be stopped
    } catch (const std::exception& error) {
      recordFailure(found, error.what());
    } catch (...) {
      recordFailure(found, "unknown exception");
    }
    return orSuccess;
  });
}
