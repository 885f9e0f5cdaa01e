#pragma once

#include <ATen/core/Tensor.h>
#include <openreg_graph_activity.h>

#include <utility>
#include <vector>

// What the sanitizer does with each activity of the device.
namespace c10::openreg::sanitizer {

// The kinds of activity that observe() needs.
constexpr unsigned kObserved = orActivityLaunch | orActivityKernel | orActivityAllocation | orActivityFree |
                               orActivityUse | orActivityHandle | orActivityCall | orActivitySynchronization |
                               orActivityNode;

// An orActivityFn_t.
void observe(const orActivity* activity, void* data);

// To be called before a kernel of the calling thread ends, if its operands were not known when it began. Checks the
// operands as if the kernel began now. A finding is left to raise_pending(), because it cannot stop the kernel any more.
void note_late_operands(orStream_t stream, DeviceIndex device, const orKernel& kernel);

// Bytes of the device that work writes which nobody describes: a read of them is no finding of the check `init`.
void count_as_written(const void* data, size_t size);

// Whether the calling thread computes a kernel at the moment.
bool is_in_kernel();

// A custom operator, or an operator that copies or fills bytes, and what it knows of the work that it launches. If a
// kernel of a custom operator does not name its operands, the kernel counts as a use of the operator's device tensors,
// and as a write of the memory that the operator has allocated for the kernel's stream. A copy or a fill of the device
// library (orMemcpyAsync, orMemsetAsync) knows only addresses: reports about it name the operator, and the shapes of
// the operator's tensors.
struct RunningOperator {
  const char* name = ""; // valid until the process ends
  bool is_custom = false;
  std::vector<std::pair<at::Tensor, bool>> tensors{};      // true: the operator writes the tensor
  std::vector<std::pair<uintptr_t, uint64_t>> allocated{}; // ShadowBlock::begin and ShadowBlock::order
};

// Sets the operator that the calling thread is in. null: it is in no such operator. Returns the previous value.
RunningOperator* exchange_running_operator(RunningOperator* op);

} // namespace c10::openreg::sanitizer
