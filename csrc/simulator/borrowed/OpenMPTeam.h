#pragma once

#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/Stream.h>

#include <string>

#include "runtime/OpenRegKernel.h"

// One OpenMP team in the process.
//
// Rule: one thread at a time computes with OpenMP. A second thread that computes makes a second team, and libgomp then
// lets *all* teams of the process sleep between parallel regions: a forward of 13 us took 96 us, on the CPU device too.
// Therefore:
//   - a thread that computes on the device runs its backward itself (run_backward_on_this_thread()),
//   - a thread that launches a kernel releases its team (launch_kernel()),
//   - the thread that runs queued kernels releases its team when it is idle.
namespace at::openreg {

// Makes the calling thread run backward itself from now on, instead of autograd's own thread for the device. Must be
// called by every kernel, because InferenceMode and other modes save and restore the state that holds this setting.
// With TORCH_OPENREG_AUTOGRAD_THREADS=1 autograd's own thread for the device runs the backward, as on CUDA.
void run_backward_on_this_thread();

// The settings of the launching thread. A queued kernel computes with them. The constructor runs at the launch.
//
// PyTorch's observers (at::RecordFunction) do not see the operators that a queued kernel calls on the device's thread.
// They saw the operator that the program called, on the thread of the program. An observer of all threads, such as
// ExecutionTraceObserver, would count the inner operators as further calls of the program.
class LaunchSettings {
 public:
  LaunchSettings();   // may call Python (c10::openreg::launched_at()): no lock may be held
  void apply() const; // on the device's thread, before the kernel; PyTorch's observers then stay off
  // A part of a failure's text, such as ", launched at train.py:12 in step"; empty if the line is not recorded.
  const std::string& launched_at() const {
    return launched_at_;
  }

  // Computes with the settings until the end of the scope; then the thread has its own settings again. For a kernel of a
  // graph: in the execution mode inline, the thread that replays the graph runs it.
  class Applied {
   public:
    explicit Applied(const LaunchSettings& settings);
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    const at::RecordFunctionGuard unobserved_{false};
    const int threads_;
    const c10::AutogradState autograd_;
  };

 private:
  const void* launching_thread_;
  int threads_;
  c10::AutogradState autograd_;
  std::string launched_at_;

  void compute_with() const;
};

// Releases the calling thread's OpenMP team, and calls orLaunchDescribed().
orError_t launch_kernel(c10::Stream stream, orHostFn_t run, void* data, unsigned flags, const orKernel& what);

} // namespace at::openreg
