#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "activity.h"
#include "graph.h"
#include "hooks.h"
#include "pointer.h"
#include "runtime.h"
#include "scheduler.h"
#include "stream.h"
#include "windows.h"

// orMemcpy, orMemset and their forms on streams: checks of the arguments, and whether a call copies at once, queues the
// copy, or waits for it.
namespace openreg {
namespace {

// A range must stay within the allocation in which it begins. Ranges of unregistered host memory cannot be checked.
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
        "%s (%p) lies in no allocation of device %d: the memory was freed, or the address is past the end of one",
        parameter,
        ptr,
        place.device);
  }
  const size_t offset = address - place.begin;
  if (size > place.size - offset) {
    return fail(
        orErrorInvalidValue,
        "%zu bytes at %s (%p) reach past the end of the allocation, which has %zu bytes, %zu of them from "
        "that address on",
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

// How many bytes queued copies have read from pageable memory in advance, and the limit of that number.
std::atomic<size_t> stagedBytes{0};
constexpr size_t kMaxStagedBytes = size_t{64} << 20;

struct Copy {
  static constexpr orActivityKind kKind = orActivityCopy;
  static constexpr orGraphNodeType kNodeType = orGraphNodeTypeMemcpy;
  static constexpr const char* kName = "memcpy";

  void* dst;
  const void* src;
  size_t size;
  std::unique_ptr<char[]> staged{}; // the source's bytes, if it is pageable memory and the copy was queued

  void run() const {
    void* const to = orGetKernelPointer(dst);
    const void* const from = staged ? staged.get() : orGetKernelPointer(src);
    // In CUDA the result of overlapping ranges is undefined. Here it is right, at no cost.
    std::memmove(to, from, size);
  }

  void visit(orOperandFn_t visit, void* context) const {
    const orOperand to{dst, size, 0, nullptr, nullptr, orAccessWrite};
    const orOperand from{src, size, 0, nullptr, nullptr, orAccessRead};
    visit(&to, context);
    visit(&from, context);
  }

  // Reads a pageable source in advance. Returns false, and reads nothing, if stagedBytes would exceed its limit or the
  // host has no memory.
  bool stage() {
    if (stagedBytes.fetch_add(size) + size <= kMaxStagedBytes) {
      staged.reset(new (std::nothrow) char[size]);
    }
    if (!staged) {
      stagedBytes -= size;
      return false;
    }
    std::memcpy(staged.get(), src, size);
    return true;
  }

  Copy(void* dst, const void* src, size_t size) : dst(dst), src(src), size(size) {}

  Copy(Copy&& other) noexcept = default;

  ~Copy() {
    if (staged) {
      stagedBytes -= size;
    }
  }
};

struct Fill {
  static constexpr orActivityKind kKind = orActivityFill;
  static constexpr orGraphNodeType kNodeType = orGraphNodeTypeMemset;
  static constexpr const char* kName = "memset";

  void* ptr;
  int value;
  size_t size;

  void run() const {
    std::memset(orGetKernelPointer(ptr), value, size);
  }

  void visit(orOperandFn_t visit, void* context) const {
    const orOperand to{ptr, size, 0, nullptr, nullptr, orAccessWrite};
    visit(&to, context);
  }
};

template <typename Task>
Work makeWork(Engine engine, orHostFn_t fn, Task* task) {
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    static_cast<const Task*>(data)->visit(visit, context);
  };
  return {engine, fn, task, Task::kKind, {Task::kName, operands, task}, currentCall()};
}

template <typename Task>
Work borrow(Engine engine, Task& task) {
  return makeWork(engine, [](void* data) { static_cast<const Task*>(data)->run(); }, &task);
}

// Adds `task` to the graph that the stream captures.
template <typename Task>
orError_t captureTask(const std::shared_ptr<Stream>& stream, Engine engine, Task& task) {
  const auto owned = std::make_shared<Task>(std::move(task));
  return capture(stream, Task::kNodeType, borrow(engine, *owned), owned);
}

// Runs `task` on this thread if the mode allows it and nothing is pending. Otherwise queues it.
template <typename Task>
orError_t queue(const std::shared_ptr<Stream>& stream, Engine engine, Task& task) {
  if (runNow(stream, borrow(engine, task), false)) {
    return orSuccess;
  }
  auto owned = std::make_unique<Task>(std::move(task));
  const orHostFn_t run = [](void* data) { std::unique_ptr<Task>(static_cast<Task*>(data))->run(); };
  const orError_t error = launch(stream, makeWork(engine, run, owned.get()), orLaunchDefault);
  if (error == orSuccess) {
    owned.release(); // `run` deletes it
  }
  return error;
}

orError_t copy(
    void* dst, const void* src, size_t size, orMemcpyKind kind, const std::shared_ptr<Stream>& stream, bool wait) {
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
  // A copy within one device runs on the thread of the kernels: on a GPU, kernels make such copies.
  const bool isLocal = to.type == orMemoryTypeDevice && from.type == orMemoryTypeDevice && to.device == from.device;
  const Engine engine = isLocal ? Engine::compute : Engine::copy;
  Copy task(dst, src, size);
  if (isCapturing(*stream)) {
    if (to.type == orMemoryTypeUnregistered || from.type == orMemoryTypeUnregistered) {
      return refuseInCapture(
          *stream,
          "a copy from or to pageable memory cannot become part of a graph. Use pinned memory (orMallocHost, "
          "orHostRegister)");
    }
    if (wait) {
      return refuseInCapture(*stream, "the call waits for the copy. Use orMemcpyAsync");
    }
    return captureTask(stream, engine, task);
  }
  if (orError_t error = checkLaunch(stream->device, stream->handle, borrow(engine, task).what); error != orSuccess) {
    return error;
  }
  if (wait || to.type == orMemoryTypeUnregistered) {
    return launchAndWait(stream, borrow(engine, task));
  }
  if (from.type != orMemoryTypeUnregistered) {
    return queue(stream, engine, task);
  }
  if (runNow(stream, borrow(engine, task), true)) {
    return orSuccess;
  }
  return task.stage() ? queue(stream, engine, task) : launchAndWait(stream, borrow(engine, task));
}

orError_t set(void* devPtr, int value, size_t size, const std::shared_ptr<Stream>& stream, bool wait) {
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
  Fill task{devPtr, value, size};
  if (isCapturing(*stream)) {
    return captureTask(stream, Engine::compute, task);
  }
  if (orError_t error = checkLaunch(stream->device, stream->handle, borrow(Engine::compute, task).what);
      error != orSuccess) {
    return error;
  }
  return wait ? launchAndWait(stream, borrow(Engine::compute, task)) : queue(stream, Engine::compute, task);
}

// Calls `queue` with the stream. `wait`: then waits, and returns a failure of the stream's work, this work included.
template <typename Queue>
orError_t onStream(const char* name, orStream_t stream, bool wait, Queue&& queue) {
  return deviceCall(name, [&]() -> orError_t {
    const auto found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    if (orError_t error = wait && !isCapturing(*found) ? mayAskFor(*found) : orSuccess; error != orSuccess) {
      return error;
    }
    const ObservedCall call(isCapturing(*found) ? kNoActivity : orActivityCall, name, found->device, found.get());
    if (orError_t error = queue(found); error != orSuccess) {
      return error;
    }
    return wait ? synchronize(found) : orSuccess;
  });
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  return onStream(
      __func__, nullptr, true, [&](const auto& stream) { return copy(dst, src, size, kind, stream, true); });
}

orError_t orMemset(void* devPtr, int value, size_t size) {
  return onStream(__func__, nullptr, true, [&](const auto& stream) { return set(devPtr, value, size, stream, true); });
}

orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream) {
  return onStream(__func__, stream, false, [&](const auto& found) { return copy(dst, src, size, kind, found, false); });
}

orError_t orMemcpyWithStream(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream) {
  return onStream(__func__, stream, true, [&](const auto& found) { return copy(dst, src, size, kind, found, true); });
}

orError_t orMemsetAsync(void* devPtr, int value, size_t size, orStream_t stream) {
  return onStream(__func__, stream, false, [&](const auto& found) { return set(devPtr, value, size, found, false); });
}
