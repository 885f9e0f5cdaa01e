#pragma once

#include <ATen/core/Tensor.h>
#include <openreg_activity.h>

#include <utility>
#include <vector>

// What the sanitizer does with each activity of the device.
namespace c10::openreg::sanitizer {

// The kinds of activity that observe() needs.
constexpr unsigned kObserved = orActivityLaunch | orActivityKernel | orActivityAllocation | orActivityFree |
                               orActivityUse | orActivityHandle | orActivityCall | orActivitySynchronization;

// An orActivityFn_t.
void observe(const orActivity* activity, void* data);

// Whether the calling thread computes a kernel at the moment.
bool is_in_kernel();

// Sets the device tensors of the custom operator that the calling thread is in: kernels of the operator that do not
// tell their operands use these. null: the thread is in no custom operator. Returns the previous value.
using CustomOperands = std::vector<std::pair<at::Tensor, bool>>; // true: the operator writes the tensor
const CustomOperands* exchange_custom_operands(const CustomOperands* operands);

} // namespace c10::openreg::sanitizer
