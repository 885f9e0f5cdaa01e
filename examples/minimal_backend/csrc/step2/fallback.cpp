#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include "../fallback.h"

// The second step: what the device cannot compute runs on the CPU. PyTorch's cpu_fallback copies the operands to the
// CPU, calls the CPU's kernel, and copies the results back. So most programs run, slowly. The price: no error names the
// next operator to write any more. A profile shows it, because the operators that fall back spend their time in copies.
namespace abacus {
namespace {

using at::Tensor;

// LITERALINCLUDE START: FALLBACK
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

// For operators without a kernel of the device.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// For calls that the device's kernel refuses.
const bool registered = (fallback = &run_on_cpu, true);
// LITERALINCLUDE END: FALLBACK

// cpu_fallback calls this operator to write a result into a tensor that the caller gave: x of x.cumsum_(0), or `out`.
Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) {
    to.resize_(from.sizes());
  }
  return to.copy_(from);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from_and_resize", copy_from_and_resize);
}

} // namespace
} // namespace abacus
