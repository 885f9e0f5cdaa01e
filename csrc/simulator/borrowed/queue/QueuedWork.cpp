#include "simulator/borrowed/queue/QueuedWork.h"

#include "simulator/borrowed/KernelScope.h"

namespace at::openreg {

void QueuedWork::run() {
  settings_.apply();
  compute_named(false);
}

void QueuedWork::replay() {
  const LaunchSettings::Applied settings(settings_);
  compute_named(true);
}

void QueuedWork::compute_named(bool again) {
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  try {
    compute(again);
  } catch (c10::Error& error) {
    error.add_context(c10::str("raised by ", name(), settings_.launched_at()));
    throw;
  }
}

} // namespace at::openreg
