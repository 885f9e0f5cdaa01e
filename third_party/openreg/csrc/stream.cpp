#include "stream.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "activity.h"
#include "device.h"
#include "graph.h"
#include "hooks.h"
#include "openreg_launch.h"
#include "runtime.h"
#include "scheduler.h"

// The functions of openreg.h about streams and launches, and the tables of stream handles.
namespace openreg {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -3;

// Never deleted: atexit handlers and destructors of other libraries may still use streams.
struct Streams {
  HandleTable<Stream, orStream_t> table;
  std::vector<Stream*> defaults; // one for each device
  std::atomic<size_t> persistent{0};
};

Streams* streams = nullptr;

// Returns null if the process has kMaxPersistent persistent streams already.
Stream* createPersistent(int device, int priority) {
  const size_t index = streams->persistent++;
  if (index >= kMaxPersistent) {
    --streams->persistent;
    return nullptr;
  }
  auto* const stream = new Stream(device, priority);
  stream->handle = reinterpret_cast<orStream_t>(index * 2 * kPersistentBit + kPersistentBit);
  persistentStreams[index].store(stream, std::memory_order_release);
  return stream;
}

// A shared_ptr without a count: persistent streams are never deleted.
std::shared_ptr<Stream> refer(Stream* persistent) {
  return {std::shared_ptr<Stream>(), persistent};
}

orError_t create(orStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr) {
    return fail(orErrorInvalidValue, "stream is NULL; pass the address of an orStream_t");
  }
  if ((flags & ~orStreamPersistent) != 0) {
    return fail(orErrorInvalidValue, "flags is %u; pass 0 or orStreamPersistent (1)", flags);
  }
  if (orError_t error = checkCall(kAtStream, currentDevice()); error != orSuccess) {
    return error;
  }
  const int clamped = std::clamp(priority, kGreatestPriority, kLeastPriority);
  if (flags == orStreamPersistent) {
    const Stream* const made = createPersistent(currentDevice(), clamped);
    if (made == nullptr) {
      return fail(
          orErrorMemoryAllocation,
          "the process has %zu persistent streams already, which is the limit; use each of them more often",
          kMaxPersistent);
    }
    *stream = made->handle;
    return orSuccess;
  }
  const auto made = std::make_shared<Stream>(currentDevice(), clamped);
  *stream = made->handle = streams->table.add(made);
  noteHandle(orActivityBegin, "orStreamCreate", *stream);
  return orSuccess;
}

} // namespace

void createDefaultStreams(int devices) {
  streams = new Streams();
  for (int device = 0; device < devices; ++device) {
    streams->defaults.push_back(createPersistent(device, kLeastPriority));
  }
}

void forgetStreams() {
  const size_t count = std::min(streams->persistent.load(), kMaxPersistent);
  for (size_t index = 0; index < count; ++index) {
    persistentStreams[index].store(nullptr, std::memory_order_relaxed);
  }
}

bool isDefaultStream(const Stream& stream) {
  return streams->defaults[stream.device] == &stream;
}

std::shared_ptr<Stream> resolveStream(orStream_t stream) {
  if (stream == nullptr) {
    return refer(streams->defaults[currentDevice()]);
  }
  if (Stream* const persistent = findPersistent(stream)) {
    return refer(persistent);
  }
  std::shared_ptr<Stream> found = streams->table.find(stream);
  if (!found) {
    fail(orErrorInvalidResourceHandle, "stream %p does not exist; it was destroyed, or is no stream", (void*)stream);
  }
  return found;
}

} // namespace openreg

using namespace openreg;

namespace {

orError_t launch(const char* name, orStream_t stream, Work work, unsigned int flags) {
  if (work.fn == nullptr && work.deferred == nullptr) {
    return fail(orErrorInvalidValue, "fn is NULL; pass a function");
  }
  const auto found = resolveStream(stream);
  if (!found) {
    return orErrorInvalidResourceHandle;
  }
  if (isCapturing(*found)) {
    if ((flags & orLaunchOnce) != 0) {
      return refuseInCapture(*found, "the work can run only once, and a graph runs it at each launch");
    }
    return capture(found, work.kind != 0 ? orGraphNodeTypeKernel : orGraphNodeTypeHost, work);
  }
  const ObservedCall call(orActivityCall, name, found->device, found.get());
  if (orError_t error = work.kind != 0 ? checkLaunch(found->device, found->handle, work.what) : orSuccess;
      error != orSuccess) {
    return error;
  }
  if (orError_t error = work.kind == orActivityKernel ? checkCall(kAtLaunch, found->device) : orSuccess;
      error != orSuccess) {
    return error;
  }
  work.call = currentCall();
  return openreg::launch(found, work, flags);
}

} // namespace

orError_t orDeviceSynchronize(void) {
  return deviceCall(__func__, []() -> orError_t {
    if (orError_t error = orMayCapture() ? checkNoCapture(currentDevice()) : orSuccess; error != orSuccess) {
      return error;
    }
    const ObservedCall call(orActivitySynchronization, "orDeviceSynchronize", currentDevice());
    return synchronizeDevice(currentDevice());
  });
}

orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return deviceCall(__func__, [&] {
    // As in CUDA, either pointer may be NULL.
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
    *stream = streams->defaults[device]->handle;
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
    if (stream == nullptr || findPersistent(stream) != nullptr) {
      return fail(orErrorInvalidResourceHandle, "a default or persistent stream cannot be destroyed");
    }
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (isCapturing(*found)) {
      return refuseInCapture(*found, "the stream belongs to a capture. Destroy it after the capture");
    }
    streams->table.remove(stream);
    noteHandle(orActivityEnd, "orStreamDestroy", stream);
    return orSuccess;
  });
}

orError_t orStreamQuery(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (orError_t error = mayAskFor(*found); error != orSuccess) {
      return error;
    }
    return isPending(found) ? orErrorNotReady : orSuccess;
  });
}

orError_t orStreamSynchronize(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (orError_t error = mayAskFor(*found); error != orSuccess) {
      return error;
    }
    const ObservedCall call(orActivitySynchronization, "orStreamSynchronize", found->device, found.get());
    return synchronize(found);
  });
}

orError_t orLaunch(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags) {
  return orLaunchDescribed(stream, fn, userData, flags, nullptr);
}

orError_t orLaunchDescribed(
    orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags, const orKernel* kernel) {
  return deviceCall("orLaunch", [&]() -> orError_t {
    if ((flags & ~(orLaunchMayRunInline | orLaunchNoWait | orLaunchOnce)) != 0) {
      return fail(
          orErrorInvalidValue,
          "flags is %u; pass orLaunchDefault (0), or join orLaunchMayRunInline (1), orLaunchNoWait (2) and "
          "orLaunchOnce "
          "(4)",
          flags);
    }
    const Work work{Engine::compute, fn, userData, orActivityKernel, kernel != nullptr ? *kernel : orKernel{}};
    return launch("orLaunch", stream, work, flags);
  });
}

orError_t orStreamAwaitLaunch(orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (isCapturing(*found)) {
      return orSuccess;
    }
    const ObservedCall call(orActivitySynchronization, "orStreamAwaitLaunch", found->device, found.get());
    return awaitLaunch(found);
  });
}

orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t fn, void* userData) {
  return deviceCall(__func__, [&] {
    return launch("orLaunchHostFunc", stream, Work{Engine::hostFunction, fn, userData}, orLaunchDefault);
  });
}

orError_t orLaunchDeferred(orStream_t stream, orDeferredFn_t fn, void* userData, const orKernel* kernel) {
  return deviceCall(__func__, [&] {
    Work work{Engine::hostFunction, nullptr, userData, orActivityKernel, kernel != nullptr ? *kernel : orKernel{}};
    work.deferred = fn;
    return launch("orLaunchDeferred", stream, work, orLaunchDefault);
  });
}

orError_t orDropFailure(const std::exception_ptr& exception, int* dropped) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (dropped == nullptr) {
      return fail(orErrorInvalidValue, "dropped is NULL; pass the address of an int");
    }
    *dropped = dropFailure(exception);
    return orSuccess;
  });
}

orError_t orCompletionSignal(orCompletion_t completion, const void* exception) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (!complete(completion, exception != nullptr ? *static_cast<const std::exception_ptr*>(exception) : nullptr)) {
      return fail(
          orErrorInvalidResourceHandle,
          "completion %p does not exist; the work has completed already, or it is no completion",
          (void*)completion);
    }
    return orSuccess;
  });
}
