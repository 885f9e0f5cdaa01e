// A fallback to the CPU as hardware needs it: it copies. tests/book/test_cpu_fallback.py compiles and runs this file.
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <unordered_set>

namespace {

using at::Tensor;

// LITERALINCLUDE START: CPU FALLBACK
// Calls of these operators are an error. A copying fallback would be so slow that nobody wants it.
const std::unordered_set<std::string> refused = {"aten::_cdist_forward"};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(!refused.count(name), "The device has no kernel for '", name, "', and no fallback.");
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    // The bytes of such a tensor have a layout that only the backend knows. Only the backend can convert it.
    TORCH_CHECK_NOT_IMPLEMENTED(
        !argument.isTensor() || !argument.toTensor().defined() || argument.toTensor().has_storage(),
        "'",
        name,
        "' cannot run on the CPU: an operand is opaque.");
  }
  // A view of a copy is no view of the operand. Such operators must be written for the device.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// cpu_fallback copies all operands of a call with this one operator. The copies are queued, and waited for once.
std::vector<Tensor> to_cpu(at::TensorList tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& each : tensors) {
    copies.push_back(at::empty_like(each, each.options().device(at::kCPU).pinned_memory(true)));
    copies.back().copy_(each, /*non_blocking=*/true);
  }
  const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
  for (const Tensor& each : tensors) {
    guard.synchronizeStream(guard.getStream(each.device()));
  }
  return copies;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_cpu", to_cpu);
  // The operators that fall back, one by one. The others raise, and so name the next kernel to write.
  for (const char* name : {"col2im", "grid_sampler_2d", "_cdist_forward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}
// LITERALINCLUDE END: CPU FALLBACK

} // namespace
