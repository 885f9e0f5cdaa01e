#include "openreg_ipc.h"

#include <cerrno>
#include <cstring>

#include "activity.h"
#include "device.h"
#include "graph.h"
#include "hooks.h"
#include "ipc.h"
#include "ipc_event.h"
#include "memfd.h"
#include "openreg_progress.h"
#include "runtime.h"
#include "scheduler.h"
#include "stream.h"
#include "windows.h"

// The functions of openreg.h and openreg_ipc.h about events, and the table of their handles.
namespace openreg {
namespace {

HandleTable<Event, orEvent_t>& events() {
  // Never deleted: atexit handlers and destructors of other libraries may still use events.
  static auto* const table = new HandleTable<Event, orEvent_t>();
  return *table;
}

std::shared_ptr<Event> resolveEvent(orEvent_t event) {
  std::shared_ptr<Event> found = events().find(event);
  if (!found) {
    fail(orErrorInvalidResourceHandle, "event %p does not exist; it was destroyed, or is no event", (void*)event);
  }
  return found;
}

// Reads the time of the event's last record. Fails if the event has no timing or was never recorded. Returns
// orErrorNotReady if the device has not reached the record.
orError_t readTime(const Event& event, const char* parameter, int64_t& nanoseconds) {
  if (!event.timing) {
    return fail(
        orErrorInvalidResourceHandle,
        "%s was created without timing; create it with orEventCreateWithFlags(event, orEventEnableTiming)",
        parameter);
  }
  if (orError_t error = event.wasCaptured ? checkNotCaptured(event) : orSuccess; error != orSuccess) {
    return error;
  }
  const EventState state = stateOf(event);
  if (!state.mark.stream) {
    return fail(orErrorInvalidResourceHandle, "%s was never recorded; call orEventRecord first", parameter);
  }
  nanoseconds = state.nanoseconds;
  return state.reached ? orSuccess : orErrorNotReady;
}

orError_t create(orEvent_t* event, unsigned int flags) {
  if (event == nullptr) {
    return fail(orErrorInvalidValue, "event is NULL; pass the address of an orEvent_t");
  }
  if ((flags & ~orEventEnableTiming) != 0) {
    return fail(orErrorInvalidValue, "flags is %u; pass orEventDisableTiming (0) or orEventEnableTiming (1)", flags);
  }
  if (orError_t error = checkCall(kAtEvent, currentDevice()); error != orSuccess) {
    return error;
  }
  *event = events().add(std::make_shared<Event>(currentDevice(), flags == orEventEnableTiming));
  noteHandle(orActivityBegin, "orEventCreate", *event);
  return orSuccess;
}

// As resolveEvent(), for a caller that asks for the last record of any process.
std::shared_ptr<Event> resolveRecorded(orEvent_t event) {
  std::shared_ptr<Event> found = resolveEvent(event);
  return found && followOtherProcesses(found) == orSuccess ? found : nullptr;
}

constexpr char kEventMagic[8] = "ipcEvnt";
constexpr IpcKind kEvent{kEventMagic, "orIpcGetEventHandle", "event", "use the event here"};

// Makes an event of the current device on the page of `fd`, and takes ownership of `fd`.
orError_t createShared(orEvent_t* event, int fd, const char* call) {
  std::shared_ptr<SharedEvent> shared = fd >= 0 ? SharedEvent::map(fd) : nullptr;
  if (!shared) {
    return fail(
        orErrorOperatingSystem,
        "cannot share an event with other processes: %s. Allow the process to open files (ulimit -n)",
        std::strerror(errno));
  }
  *event = events().add(std::make_shared<Event>(currentDevice(), false, std::move(shared)));
  noteHandle(orActivityBegin, call, *event);
  return orSuccess;
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orIpcEventCreate(orEvent_t* event, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (event == nullptr) {
      return fail(orErrorInvalidValue, "event is NULL; pass the address of an orEvent_t");
    }
    if (flags != orEventDisableTiming) {
      return fail(
          orErrorInvalidValue,
          "flags is %u; an event for other processes has no timing, pass orEventDisableTiming (0)",
          flags);
    }
    if (orError_t error = checkCall(kAtEvent, currentDevice()); error != orSuccess) {
      return error;
    }
    return createShared(event, createMemfd(kPageSize), "orIpcEventCreate");
  });
}

orError_t orIpcGetEventHandle(orIpcEventHandle_t* handle, orEvent_t event) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (handle == nullptr) {
      return fail(orErrorInvalidValue, "handle is NULL; pass the address of an orIpcEventHandle_t");
    }
    const auto found = resolveEvent(event);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (!found->shared) {
      return fail(orErrorInvalidResourceHandle, "the event is for this process only; make it with orIpcEventCreate");
    }
    const IpcHandle content = describeMemfd(kEventMagic, found->shared->fd, kPageSize);
    *handle = {};
    std::memcpy(handle, &content, sizeof(content));
    return orSuccess;
  });
}

orError_t orIpcOpenEventHandle(orEvent_t* event, orIpcEventHandle_t handle) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (event == nullptr) {
      return fail(orErrorInvalidValue, "event is NULL; pass the address of an orEvent_t");
    }
    if (orError_t error = checkCall(kAtIpc, currentDevice()); error != orSuccess) {
      return error;
    }
    IpcHandle content;
    std::memcpy(&content, &handle, sizeof(content));
    int fd = -1;
    content.size = kPageSize; // a damaged handle must not map more
    if (orError_t error = openMemfd(content, kEvent, fd); error != orSuccess) {
      return error;
    }
    return createShared(event, fd, "orIpcOpenEventHandle");
  });
}

bool orIpcIsShared(orEvent_t event) {
  const auto found = orIsInBadFork() ? nullptr : events().find(event);
  return found && found->shared;
}

orError_t orEventCreate(orEvent_t* event) {
  return deviceCall(__func__, [&] { return create(event, orEventDisableTiming); });
}

orError_t orEventCreateWithFlags(orEvent_t* event, unsigned int flags) {
  return deviceCall(__func__, [&] { return create(event, flags); });
}

orError_t orEventDestroy(orEvent_t event) {
  return releaseCall(__func__, [&]() -> orError_t {
    if (!events().remove(event)) {
      return fail(
          orErrorInvalidResourceHandle, "event %p does not exist; it was destroyed, or is no event", (void*)event);
    }
    noteHandle(orActivityEnd, "orEventDestroy", event);
    return orSuccess;
  });
}

orError_t orEventRecord(orEvent_t event, orStream_t stream) {
  return orEventRecordWithFlags(event, stream, orEventRecordDefault);
}

orError_t orEventRecordWithFlags(orEvent_t event, orStream_t stream, unsigned int flags) {
  return deviceCall("orEventRecord", [&]() -> orError_t {
    if ((flags & ~orEventRecordExternal) != 0) {
      return fail(
          orErrorInvalidValue, "flags is %u; pass orEventRecordDefault (0) or orEventRecordExternal (1)", flags);
    }
    const auto found = resolveEvent(event);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    const auto on = resolveStream(stream);
    if (!on) {
      return orErrorInvalidResourceHandle;
    }
    if (on->device != found->device) {
      return fail(
          orErrorInvalidResourceHandle,
          "the event is of device %d, but the stream is of device %d; create the event while the stream's device is "
          "current",
          found->device,
          on->device);
    }
    if (isCapturing(*on)) {
      return captureRecord(on, found, event, flags == orEventRecordExternal);
    }
    if (found->wasCaptured) {
      forgetCapture(*found);
    }
    const ObservedCall call(orActivityCall, "orEventRecord", on->device, on.get(), event);
    record(found, on);
    return orSuccess;
  });
}

orError_t orEventQuery(orEvent_t event) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveEvent(event);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (orError_t error = mayAskFor(*found); error != orSuccess) {
      return error;
    }
    const bool pending = isPending(*found); // also of a shared event: its last record may be of this process
    const bool reached = found->shared ? found->shared->isReached(found->shared->last()) : !pending;
    return reached ? orSuccess : orErrorNotReady;
  });
}

orError_t orEventPeek(orEvent_t event) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveEvent(event);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (orError_t error = mayAskFor(*found); error != orSuccess) {
      return error;
    }
    return stateOf(*found).reached ? orSuccess : orErrorNotReady;
  });
}

orError_t orEventFlush(orEvent_t event) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveEvent(event);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    letRun(stateOf(*found).mark);
    return orSuccess;
  });
}

orError_t orEventSynchronize(orEvent_t event) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto found = resolveRecorded(event);
    if (!found) {
      return orPeekAtLastError();
    }
    if (orError_t error = mayAskFor(*found); error != orSuccess) {
      return error;
    }
    const Mark mark = stateOf(*found).mark;
    if (!mark.stream && !(found->shared && found->shared->last() != 0)) { // never recorded
      return orSuccess;
    }
    const ObservedCall call(orActivitySynchronization, "orEventSynchronize", found->device, mark.stream.get(), event);
    return mark.stream ? synchronize(mark) : orSuccess; // no stream: what another process recorded was reached
  });
}

orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (ms == nullptr) {
      return fail(orErrorInvalidValue, "ms is NULL; pass the address of a float");
    }
    const auto first = resolveEvent(start);
    const auto last = first ? resolveEvent(end) : nullptr;
    if (!last) {
      return orErrorInvalidResourceHandle;
    }
    int64_t from = 0;
    int64_t to = 0;
    if (orError_t error = readTime(*first, "start", from); error != orSuccess) {
      return error;
    }
    if (orError_t error = readTime(*last, "end", to); error != orSuccess) {
      return error;
    }
    if (first->device != last->device) {
      return fail(
          orErrorInvalidResourceHandle,
          "start belongs to device %d, and end to device %d; record both events on one device",
          first->device,
          last->device);
    }
    const auto simulated = simulatedEventTime.load();
    *ms = simulated != nullptr ? static_cast<float>((simulated(end) - simulated(start)) * 1e3)
                               : static_cast<float>(to - from) / 1e6f;
    return orSuccess;
  });
}

orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if ((flags & ~orEventWaitExternal) != 0) {
      return fail(orErrorInvalidValue, "flags is %u; pass 0 or orEventWaitExternal (1)", flags);
    }
    const auto waiting = resolveStream(stream);
    const auto found = waiting ? resolveRecorded(event) : nullptr;
    if (!found) {
      return orPeekAtLastError();
    }
    if (isCapturing(*waiting) || found->wasCaptured) {
      bool captured = false;
      const orError_t error = captureWait(waiting, found, event, flags == orEventWaitExternal, captured);
      if (captured || error != orSuccess) {
        return error;
      }
    }
    const ObservedCall call(orActivitySynchronization, "orStreamWaitEvent", waiting->device, waiting.get(), event);
    return waitForEvent(waiting, stateOf(*found).mark);
  });
}
