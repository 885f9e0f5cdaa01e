#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "simulator/borrowed/random/PhiloxGenerator.h"

namespace at::openreg {

// The kernel that stands in for the CPU's kernel of `op` if the operator draws from a PhiloxGenerator. It takes aliases,
// as the CPU's kernel does. An operator without a kernel of its own runs the CPU's kernel, which draws from a Mersenne
// twister whose seed is the next number of the generator.
const c10::KernelFunction& random_kernel(const c10::OperatorHandle& op);

// random_kernel() for an operator that is known at compile time, with aliases as arguments.
template <class Op, class Result, class... Args>
Result run_random_kernel(Args... args) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  static const c10::KernelFunction& kernel = random_kernel(op);
  return kernel.call<Result, Args...>(op, c10::DispatchKeySet(c10::DispatchKey::CPU), std::forward<Args>(args)...);
}

} // namespace at::openreg
