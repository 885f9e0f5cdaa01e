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

// A replay calls the function, and the graph destroys it. Which tensors the kernel writes is not known before, so all
// of them count as written from the capture on.
void capture_interpreted(
    orStream_t stream,
    orGraph_t graph,
    const char* name,
    const std::vector<InterpretedAccess>& whole,
    const std::function<std::vector<InterpretedAccess>(bool tells)>& compute) {
  using Compute = std::function<std::vector<InterpretedAccess>(bool tells)>;
  Compute* const kept = c10::openreg::retain(graph, std::make_unique<Compute>(compute));
  const orHostFn_t replay = [](void* data) { (*static_cast<Compute*>(data))(false); };
  const orKernel described{name, [](void*, orOperandFn_t, void*) {}, nullptr};
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
    const std::function<std::vector<InterpretedAccess>(bool tells)>& compute) {
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
    accesses = compute(c10::openreg::sanitizer::running.load(std::memory_order_relaxed));
    c10::openreg::sanitizer::note_late_operands(stream, device, described);
  }
  c10::openreg::sanitizer::raise_pending();
  return false;
}

} // namespace at::openreg
