/*
 * orLaunchKernel: queues the call of a C++ function on a stream, as `kernel<<<..., stream>>>(args...)` does in CUDA.
 *
 *     void scale(const float* from, float* to, size_t count, float factor) {
 *       from = static_cast<const float*>(orGetKernelPointer(from));
 *       to = static_cast<float*>(orGetKernelPointer(to));
 *       ...
 *     }
 *     orLaunchKernel(stream, {"scale", {orReads(from, count), orWrites(to, count)}}, scale, from, to, count, 2.0f);
 *
 * orDropFailure: drops the failures with a certain exception.
 */
#ifndef OPENREG_LAUNCH_H
#define OPENREG_LAUNCH_H

#include <exception>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "openreg.h"
#include "openreg_graph.h"

/* A contiguous array that a kernel reads, writes, or both. */
struct orRange {
  const void* data;
  size_t size; /* bytes */
  unsigned int access;
};
template <typename T>
orRange orReads(const T* data, size_t count) {
  return {data, count * sizeof(T), orAccessRead};
}
template <typename T>
orRange orWrites(T* data, size_t count) {
  return {data, count * sizeof(T), orAccessWrite};
}
template <typename T>
orRange orUpdates(T* data, size_t count) {
  return {data, count * sizeof(T), orAccessRead | orAccessWrite};
}

/* What subscribers (openreg_activity.h) get of a kernel. `ranges` must name all memory that the kernel reads or
 * writes. */
struct orKernelInfo {
  const char* name; /* a string literal */
  std::vector<orRange> ranges;
};

namespace openreg_launch_detail {

template <typename... Parts>
struct Call {
  /* Whether the call can be made more than once. */
  static constexpr bool kRepeats = std::is_invocable_v<Parts&...>;

  std::vector<orRange> ranges;
  std::tuple<Parts...> parts;
};

/* The arguments belong to the graph that the stream captures. */
template <typename Call>
orError_t capture(orStream_t stream, orGraph_t graph, std::unique_ptr<Call> call, orKernel kernel) {
  const orHostFn_t destroy = [](void* data) { delete static_cast<Call*>(data); };
  const orHostFn_t run = [](void* data) {
    std::apply([](auto&... parts) { std::invoke(parts...); }, static_cast<Call*>(data)->parts);
  };
  Call* const data = call.get();
  if (const orError_t error = orGraphRetainUserObject(graph, data, destroy); error != orSuccess) {
    return error;
  }
  call.release();
  return orLaunchDescribed(stream, run, data, orLaunchDefault, &kernel);
}

template <typename Call>
orError_t launch(orStream_t stream, std::unique_ptr<Call> call, orKernel kernel) {
  const orHostFn_t run = [](void* data) {
    const std::unique_ptr<Call> owned(static_cast<Call*>(data));
    std::apply([](auto&&... parts) { std::invoke(std::move(parts)...); }, std::move(owned->parts));
  };
  kernel.data = call.get();
  if constexpr (Call::kRepeats) {
    orStreamCaptureStatus status = orStreamCaptureStatusNone;
    orGraph_t graph = nullptr;
    if (orMayCapture() && orStreamGetCaptureInfo(stream, &status, nullptr, &graph) == orSuccess &&
        status == orStreamCaptureStatusActive) {
      return capture(stream, graph, std::move(call), kernel);
    }
  }
  const orError_t error = orLaunchDescribed(stream, run, call.get(), orLaunchOnce, &kernel);
  if (error == orSuccess) {
    call.release(); /* `run` deletes it */
  }
  return error;
}

} // namespace openreg_launch_detail

/* Copies or moves `fn` and `args` as std::thread does (std::ref keeps a reference), and calls fn(args...) once, when
 * the stream comes to it. If the stream captures (openreg_graph.h), each replay calls fn(args...) with the same objects;
 * the capture refuses a call that can be made only once, because it consumes an argument that cannot be copied.
 *
 * If an exception leaves the call, the stream has failed: the next call that waits for the stream returns
 * orErrorLaunchFailure, once. Then orGetLastErrorMessage() has the exception's text, and orRethrowLaunchFailure() throws
 * it. Errors and waits are those of orLaunch. */
template <typename Fn, typename... Args>
orError_t orLaunchKernel(orStream_t stream, orKernelInfo info, Fn&& fn, Args&&... args) {
  using Call = openreg_launch_detail::Call<std::decay_t<Fn>, std::decay_t<Args>...>;
  std::unique_ptr<Call> call(new Call{std::move(info.ranges), {std::forward<Fn>(fn), std::forward<Args>(args)...}});
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    for (const orRange& range : static_cast<const Call*>(data)->ranges) {
      const orOperand operand{range.data, range.size, 0, nullptr, nullptr, range.access};
      visit(&operand, context);
    }
  };
  return openreg_launch_detail::launch(stream, std::move(call), {info.name, operands, nullptr});
}

/* The same, without a description: subscribers assume that the kernel may read and write any memory. */
template <typename Fn, typename... Args, typename = std::enable_if_t<!std::is_same_v<std::decay_t<Fn>, orKernelInfo>>>
orError_t orLaunchKernel(orStream_t stream, Fn&& fn, Args&&... args) {
  using Call = openreg_launch_detail::Call<std::decay_t<Fn>, std::decay_t<Args>...>;
  std::unique_ptr<Call> call(new Call{{}, {std::forward<Fn>(fn), std::forward<Args>(args)...}});
  return openreg_launch_detail::launch(stream, std::move(call), {nullptr, nullptr, nullptr});
}

/* Drops the failures with this exception that no call has returned yet. A library that is shut down calls this
 * function, so that the failures of its work do not reach other code. `dropped` gets the number of dropped failures.
 * Does not wait. */
extern "C" OPENREG_EXPORT orError_t orDropFailure(const std::exception_ptr& exception, int* dropped);

#endif /* OPENREG_LAUNCH_H */
