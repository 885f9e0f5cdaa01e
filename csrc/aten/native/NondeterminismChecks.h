#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "runtime/OpenRegException.h"

// After torch.use_deterministic_algorithms(True), the operators that are nondeterministic on CUDA raise (or warn, with
// warn_only=True) on this device too, with the same message. The CPU's kernels, which run here, are deterministic. But
// a program that will train on a GPU gets the error before it runs there.
//
// Rule: in the execution mode inline, only the operators in the table of NondeterminismChecks.cpp check whether they
// must raise, so the check costs all other operators nothing. An operator whose CPU kernel raises by itself
// (max_unpool2d, resize_ of a quantized tensor) has no row in the table.
namespace at::openreg {

// The operators in the table, with their overloads: "aten::histc.out".
const std::vector<std::string>& nondeterministic_operators();

// Turns the checks on, the default, or off: for an accelerator whose kernels do not raise.
OPENREG_API void set_nondeterminism_checks(bool on);

// Whether `op` may raise in a deterministic program. In such a program `op` is not queued, so that its call raises the
// error.
bool has_nondeterminism_check(const c10::OperatorHandle& op);

// To be called in a deterministic program. Raises or warns if CUDA's kernel would do so in this call.
void check_nondeterminism(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Calls `run`, a boxed kernel. In a deterministic program, calls check_nondeterminism() first.
template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* run>
void check_and_run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(globalContext().deterministicAlgorithms())) {
    check_nondeterminism(op, *stack);
  }
  run(op, keys, stack);
}

} // namespace at::openreg
