#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <memory>

#include "aten/native/OperatorTraits.h"
#include "simulator/borrowed/OneTeam.h"

// A CPU kernel that is queued on a stream. Until the kernel has run, the object keeps CPU aliases of the operands,
// twins of the results' memory, and the settings of the launching thread. Aliases and twins own no device memory.
namespace at::openreg {

// Memory that a result got at the launch.
struct Reserved {
  c10::intrusive_ptr<c10::StorageImpl> memory; // a CPU twin; null: the call returns no tensor for this result
  c10::impl::SizesAndStrides shape;
  caffe2::TypeMeta dtype;
};

class QueuedKernel {
 public:
  QueuedKernel(const c10::OperatorHandle& op, torch::jit::Stack&& operands) : op_(op), stack_(std::move(operands)) {}

  // Adds the next result. The caller sets its memory, or leaves that null if the call returns no tensor for the result.
  Reserved& add_result() {
    return reserved_.emplace_back();
  }

  const char* name() const {
    return traits_of(op_.schema()).name.c_str();
  }
  void visit_operands(orOperandFn_t visit, void* context) const; // may be called until run() begins
  void run();

 private:
  // Results that lie outside of their reserved memory, or that have other strides than reserved.
  using Misplaced = c10::SmallVector<std::pair<const Reserved*, Tensor>, 2>;

  c10::OperatorHandle op_;
  torch::jit::Stack stack_; // CPU aliases
  c10::SmallVector<Reserved, 2> reserved_;
  LaunchSettings settings_;

  Misplaced compute();
  bool is_at_reserved_address(const Reserved& wanted, const Tensor& result) const;
  void move(Misplaced misplaced) const;
};

// Queues the kernel on `stream`, which then owns the kernel. Returns false, and leaves the kernel to the caller, if
// `flags` has orLaunchNoWait and a launch would wait.
bool launch(c10::Stream stream, std::unique_ptr<QueuedKernel>& kernel, unsigned flags = orLaunchDefault);

} // namespace at::openreg
