#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/AutogradState.h>

#include "../../runtime/OpenRegStream.h"

// LITERALINCLUDE START: QUEUE RULES
// Operators on the device's time: in the execution modes async and chaos an operator's kernel is queued on the current
// stream, as a kernel is on CUDA, and the call returns before it has run.
//
// Its results must be known without running it: they are its arguments (in-place, out=), or a meta kernel in C++ tells
// their shapes, and they get their memory at once. Whatever is unusual about a call (an operator without such a kernel, a
// result that would have to be resized, operands that overlap, a shape that does not fit) is not queued: the caller
// waits for the stream and runs the kernel on its own thread, so that there is one source of results and of errors.
//
// Rules: a queued kernel holds CPU aliases (KernelScope.h) and no device tensor, since a tensor may be freed while work
// on it is queued. What the host may change after the call, CPU scalars and CPU indices, is copied at launch.
// LITERALINCLUDE END: QUEUE RULES
namespace at::openreg {

// Queues `op` on the current stream of `device` and replaces its arguments on the stack by its results. False, and the
// stack as it was: the caller must run it.
bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack);

// Whether try_queue() would consider `op` at all.
OPENREG_API bool is_queueable(const c10::OperatorHandle& op);

// Queues the CPU kernel of `op`; `operands` are CPU tensors that nobody else changes.
void queue_on(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands);

// What a queued kernel keeps of the thread that launches it, and so makes this.
class LaunchSettings {
 public:
  LaunchSettings();   // may call Python (LaunchSite): no lock may be held
  void apply() const; // on the device's thread, before the kernel
  // ", launched at train.py:12 in step", for the failure's text; empty where that is not recorded.
  const std::string& launched_at() const {
    return launched_at_;
  }

 private:
  int threads_;
  c10::AutogradState autograd_;
  std::string launched_at_;
};

// orLaunchDescribed() for a kernel that uses OpenMP.
orError_t launch_kernel(c10::Stream stream, orHostFn_t run, void* data, unsigned flags, const orKernel& what);

// Where a kernel was launched: a source line, which failures then name. Null, the default: they do not.
using LaunchSite = std::string (*)();
OPENREG_API void set_launch_site(LaunchSite site);

} // namespace at::openreg
