#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <limits>

// Which operators can be queued: those whose results are known without running them.
namespace at::openreg {

struct QueueRule {
  // Where the results come from.
  enum class Results {
    Unknown,      // nobody knows them before the kernel has run: the operator is not queued
    Meta,         // the meta kernel tells their shapes
    InPlace,      // the result is the first argument
    WrittenLists, // there is no result: the operator writes lists of tensors, as the fused optimizers do
  } results = Results::Unknown;
  const c10::KernelFunction* meta = nullptr;
  size_t generator = std::numeric_limits<size_t>::max(); // the number of the argument that is a generator
};

// The rule of an operator: made once for each thread, then a look-up by address.
const QueueRule& queue_rule_of(const c10::OperatorHandle& op);

// Whether try_queue() would consider `op` at all.
bool can_be_queued(const c10::OperatorHandle& op);

} // namespace at::openreg
