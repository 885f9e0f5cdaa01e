#include "simulator/triton/InterpretedKernel.h"

#include "runtime/OpenRegGraphsC10Utils.h"
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

bool is_observed() {
  return c10::openreg::sanitizer::running.load(std::memory_order_relaxed);
}

// What a graph keeps of a kernel. A replay calls the function, and the sanitizer is told the accesses.
struct CapturedKernel {
  Interpreted compute;
  std::vector<InterpretedAccess> accesses;
};

std::vector<InterpretedAccess> rehearse(const Interpreted& compute) {
  try {
    return compute(Interpretation::Rehearses);
  } catch (const std::exception&) {
    return {}; // a mistake of the kernel is the error of its replay
  }
}

// A rehearsal may not have found all that the kernel writes, so all of its tensors count as written from the capture on.
void capture_interpreted(
    orStream_t stream,
    orGraph_t graph,
    const char* name,
    const std::vector<InterpretedAccess>& whole,
    const Interpreted& compute) {
  auto kernel = std::make_unique<CapturedKernel>(CapturedKernel{compute});
  if (is_observed()) {
    kernel->accesses = rehearse(compute);
  }
  CapturedKernel* const kept = c10::openreg::retain(graph, std::move(kernel));
  const orHostFn_t replay = [](void* data) { static_cast<CapturedKernel*>(data)->compute(Interpretation::Computes); };
  const orKernel described{name, &visit_accesses, &kept->accesses};
  OPENREG_CHECK(orLaunchDescribed(stream, replay, kept, orLaunchDefault, &described));
  for (const InterpretedAccess& each : whole) {
    c10::openreg::sanitizer::count_as_written(each.data, static_cast<size_t>(each.size));
  }
}

} // namespace

bool run_interpreted(
    c10::DeviceIndex device,
    const char* name,
    const std::vector<InterpretedAccess>& whole,
    const Interpreted& compute) {
  const c10::openreg::OpenRegStream current = c10::openreg::getCurrentOpenRegStream(device);
  const orStream_t stream = current.stream();
  std::vector<InterpretedAccess> accesses = whole;
  const orKernel described{name, &visit_accesses, &accesses};
  if (C10_UNLIKELY(dry_limit() > 0) && skip_kernel(stream, described)) {
    return false;
  }
  orGraph_t graph = nullptr;
  if (c10::openreg::capture_of(current, &graph) != 0) {
    capture_interpreted(stream, graph, name, whole, compute);
    return true;
  }
  accesses.clear();
  {
    const c10::openreg::Kernel kernel(stream, name, &visit_accesses, &accesses);
    accesses = compute(is_observed() ? Interpretation::Tells : Interpretation::Computes);
    c10::openreg::sanitizer::note_late_operands(stream, device, described);
  }
  c10::openreg::sanitizer::raise_pending();
  return false;
}

} // namespace at::openreg
