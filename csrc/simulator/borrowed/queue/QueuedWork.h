#pragma once

#include <c10/core/Stream.h>
#include <openreg_graph.h>

#include <memory>
#include <utility>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "simulator/borrowed/OpenMPTeam.h"
#include "simulator/borrowed/Recycled.h"

namespace at::openreg {

// A kernel that is queued on a stream. Until the kernel has run, the object keeps what the kernel needs: CPU aliases of
// the operands, and the settings of the launching thread. It owns no device memory. A kernel that is launched in a
// capture belongs to the graph, and each replay runs it.
class QueuedWork : public Recycled {
 public:
  virtual ~QueuedWork() = default;

  virtual const char* name() const = 0;                                      // of the operator
  virtual void visit_operands(orOperandFn_t visit, void* context) const = 0; // may be called until run() begins
  void run();                                                                // on the device's thread
  void replay();                                                             // on any thread, any number of times

 private:
  LaunchSettings settings_;

  void compute_named(bool again);

  // `again`: the kernel may be computed again, so the object must stay as it is.
  virtual void compute(bool again) = 0;
};

// Launches a kernel on `stream`, which then owns the kernel: a QueuedWork, or any class with the same name(),
// visit_operands(), run() and replay(). Returns false, and leaves the kernel to the caller, if `flags` has
// orLaunchNoWait and a launch would wait.
// LITERALINCLUDE START: QUEUE LAUNCH
template <class Kernel>
bool launch(c10::Stream stream, std::unique_ptr<Kernel>& kernel, unsigned flags = orLaunchDefault) {
  const orHostFn_t run = [](void* data) { std::unique_ptr<Kernel>(static_cast<Kernel*>(data))->run(); };
  const orHostFn_t replay = [](void* data) { static_cast<Kernel*>(data)->replay(); };
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    static_cast<const Kernel*>(data)->visit_operands(visit, context);
  };
  const orKernel what{kernel->name(), operands, kernel.get()};
  orGraph_t graph = nullptr;
  if (C10_UNLIKELY(c10::openreg::capture_of(stream, &graph) != 0)) {
    Kernel* const kept = c10::openreg::retain(graph, std::move(kernel));
    OPENREG_CHECK(
        orLaunchDescribed(c10::openreg::OpenRegStream(stream).stream(), replay, kept, orLaunchDefault, &what));
    return true;
  }
  const orError_t error = launch_kernel(stream, run, kernel.get(), flags, what);
  if (error == orErrorNotReady) {
    return false;
  }
  OPENREG_CHECK(error);
  kernel.release(); // `run` deletes the kernel
  return true;
}
// LITERALINCLUDE END: QUEUE LAUNCH

} // namespace at::openreg
