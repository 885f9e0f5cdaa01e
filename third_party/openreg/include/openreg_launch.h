/*
 * orLaunchKernel: queues a call of any C++ callable on a stream of openreg, as `kernel<<<..., stream>>>(args...)` does
 * in CUDA.
 *
 *     void scale(float* data, size_t count, float factor) {
 *       auto* values = static_cast<float*>(orGetKernelPointer(data));
 *       ...
 *     }
 *     orLaunchKernel(stream, scale, data, count, 2.0f);
 */
#ifndef OPENREG_LAUNCH_H
#define OPENREG_LAUNCH_H

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "openreg.h"

/* Copies or moves `fn` and `args` as std::thread does (std::ref keeps a reference) and calls them once, on the device's
 * time. An exception that leaves the call is the stream's failure: the next synchronising call returns
 * orErrorLaunchFailure, once, with the exception's text in orGetLastErrorMessage(), and orRethrowLaunchFailure() throws
 * it. */
template <typename Fn, typename... Args>
orError_t orLaunchKernel(orStream_t stream, Fn&& fn, Args&&... args) {
  using Call = std::tuple<std::decay_t<Fn>, std::decay_t<Args>...>;
  auto call = std::make_unique<Call>(std::forward<Fn>(fn), std::forward<Args>(args)...);
  const orHostFn_t run = [](void* data) {
    const std::unique_ptr<Call> owned(static_cast<Call*>(data));
    std::apply([](auto&&... parts) { std::invoke(std::move(parts)...); }, std::move(*owned));
  };
  Call* const data = call.release();
  const orError_t error = orLaunch(stream, run, data, orLaunchDefault);
  if (error != orSuccess) {
    delete data; /* it was not queued; otherwise the call deletes it */
  }
  return error;
}

#endif /* OPENREG_LAUNCH_H */
