#pragma once

#include <c10/core/Stream.h>

#include <memory>

#include "simulator/borrowed/OpenMPTeam.h"

namespace at::openreg {

// A kernel that is queued on a stream. Until the kernel has run, the object keeps what the kernel needs: CPU aliases of
// the operands, and the settings of the launching thread. It owns no device memory.
class QueuedWork {
 public:
  virtual ~QueuedWork() = default;

  virtual const char* name() const = 0;                                      // of the operator
  virtual void visit_operands(orOperandFn_t visit, void* context) const = 0; // may be called until run() begins
  void run();                                                                // on the device's thread

 private:
  LaunchSettings settings_;

  virtual void compute() = 0;
};

// Queues the kernel on `stream`, which then owns the kernel. Returns false, and leaves the kernel to the caller, if
// `flags` has orLaunchNoWait and a launch would wait.
bool launch(c10::Stream stream, std::unique_ptr<QueuedWork>& kernel, unsigned flags = orLaunchDefault);

} // namespace at::openreg
