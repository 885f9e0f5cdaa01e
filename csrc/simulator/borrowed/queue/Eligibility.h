#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <limits>

// Which operators can be queued: those whose result tensors can be made before the kernel runs.
namespace at::openreg {

struct QueueRule {
  // Where the results come from.
  enum class Results {
    Unknown,      // not known before the kernel has run: the operator is not queued
    PyTorchMeta,  // only PyTorch's own meta kernel may know their shapes: the operator is queued in captures only
    Meta,         // the meta kernel computes their shapes
    InPlace,      // the result is the first argument
    WrittenLists, // there is no result: the operator only writes arguments, such as the lists of the fused optimizers
  } results = Results::Unknown;
  const c10::KernelFunction* meta = nullptr;
  size_t generator = std::numeric_limits<size_t>::max(); // index of the generator argument; max: none
};

// The rule of an operator. Each thread makes the rule of an operator of PyTorch once, and then finds it by the address of
// the schema.
QueueRule queue_rule_of(const c10::OperatorHandle& op);

// Whether a call of `op` can be queued. Whether try_queue() queues a certain call depends on the arguments, too.
bool can_be_queued(const c10::OperatorHandle& op);

} // namespace at::openreg
