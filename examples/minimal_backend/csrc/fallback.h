#pragma once

#include <ATen/core/boxing/KernelFunction.h>

// The place of the second step's fallback (step2/fallback.cpp). nullptr: there is none.
namespace abacus {

inline c10::KernelFunction::BoxedKernelFunction* fallback = nullptr;

inline void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fallback(op, stack);
}

} // namespace abacus
