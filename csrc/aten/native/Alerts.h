#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "../../runtime/OpenRegException.h"

// After torch.use_deterministic_algorithms(True), the operators that are nondeterministic on CUDA raise here as they raise
// there, although the CPU's kernels, which run here, are deterministic. A program that will train on a GPU is told before
// it gets there.
//
// Rule: only the operators in the table of Alerts.cpp ask for the setting, so all others pay nothing for it. An operator
// whose CPU kernel raises by itself (max_unpool2d, resize_ of a quantized tensor) has no row in the table.
namespace at::openreg {

// The operators in the table, with their overloads: "aten::cumsum.out".
const std::vector<std::string>& alerting_operators();

// Sets whether the operators raise at all. They do, unless a device model stands for an accelerator whose kernels do not.
OPENREG_API void set_alerts(bool raised);

// Whether `op` may raise in a deterministic program. Such an operator is not queued: the caller must hear of it.
bool alerts(const c10::OperatorHandle& op);

// Raises, or warns, if a CUDA kernel of this call would.
void alert(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// `run`, a boxed kernel, after the alert.
template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* run>
void alert_and_run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(globalContext().deterministicAlgorithms())) {
    alert(op, *stack);
  }
  run(op, keys, stack);
}

} // namespace at::openreg
