#include "simulator/borrowed/queue/QueuedWork.h"

#include "simulator/borrowed/KernelScope.h"

namespace at::openreg {

void QueuedWork::run() {
  settings_.apply();
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  try {
    compute();
  } catch (c10::Error& error) {
    error.add_context(c10::str("raised by ", name(), settings_.launched_at()));
    throw;
  }
}

// LITERALINCLUDE START: QUEUE LAUNCH
bool launch(c10::Stream stream, std::unique_ptr<QueuedWork>& kernel, unsigned flags) {
  const orHostFn_t run = [](void* data) { std::unique_ptr<QueuedWork>(static_cast<QueuedWork*>(data))->run(); };
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    static_cast<const QueuedWork*>(data)->visit_operands(visit, context);
  };
  const orKernel what{kernel->name(), operands, kernel.get()};
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
