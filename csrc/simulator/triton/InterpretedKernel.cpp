#include "simulator/triton/InterpretedKernel.h"

#include "runtime/OpenRegKernel.h"
#include "simulator/dry/Contents.h"
#include "simulator/dry/Undecided.h"
#include "simulator/sanitizer/Observer.h"
#include "simulator/sanitizer/SessionState.h"

namespace at::openreg {
namespace {

void visit_accesses(void* accesses, orOperandFn_t visit, void* context) {
  for (const InterpretedAccess& each : *static_cast<const std::vector<InterpretedAccess>*>(accesses)) {
    const orOperand operand{each.data, static_cast<size_t>(each.size), 1, &each.count, &each.step, each.access};
    visit(&operand, context);
  }
}

} // namespace

void run_interpreted(
    c10::DeviceIndex device,
    const char* name,
    const std::vector<InterpretedAccess>& whole,
    const std::function<std::vector<InterpretedAccess>(bool tells)>& compute) {
  const orStream_t stream = c10::openreg::getCurrentOpenRegStream(device).stream();
  std::vector<InterpretedAccess> accesses = whole;
  const orKernel described{name, &visit_accesses, &accesses};
  if (C10_UNLIKELY(dry_limit() > 0) && skip_kernel(stream, described)) {
    return;
  }
  accesses.clear();
  {
    const c10::openreg::Kernel kernel(stream, name, &visit_accesses, &accesses);
    accesses = compute(c10::openreg::sanitizer::running.load(std::memory_order_relaxed));
    c10::openreg::sanitizer::note_late_operands(stream, device, described);
  }
  c10::openreg::sanitizer::raise_pending();
}

} // namespace at::openreg
