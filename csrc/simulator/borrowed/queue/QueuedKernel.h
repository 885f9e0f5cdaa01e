#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/SizesAndStrides.h>

#include "aten/native/OperatorTraits.h"
#include "simulator/borrowed/ResultPlaces.h"
#include "simulator/borrowed/queue/QueuedWork.h"

// A CPU kernel on aliases that is queued on a stream.
namespace at::openreg {

// Memory that a result got at the launch.
struct Reserved {
  c10::intrusive_ptr<c10::StorageImpl> memory; // a CPU view; null: the call returns no tensor for this result
  c10::impl::SizesAndStrides shape;
  caffe2::TypeMeta dtype;
};

// Allocates the memory of a result that has the shape and the dtype of `meta`, and reserves the memory in `reserved`.
Tensor make_result(Tensor&& meta, c10::DeviceIndex device, Reserved& reserved);

class QueuedKernel final : public QueuedWork {
 public:
  // `random`: the kernel that stands in for the CPU's, if the CPU's generator is not the device's; null: the CPU's kernel.
  // `dispatch`: the CPU's kernel is the one of this key.
  QueuedKernel(
      const c10::OperatorHandle& op,
      torch::jit::Stack&& operands,
      CallKey key,
      const c10::KernelFunction* random = nullptr,
      c10::DispatchKey dispatch = c10::DispatchKey::CPU)
      : op_(op), stack_(std::move(operands)), key_(key), random_(random), dispatch_(dispatch) {}

  // Adds the next result, or the next component of a sparse result. The caller sets its memory, or leaves that null if
  // the call returns no tensor for the result.
  Reserved& add_result() {
    return reserved_.emplace_back();
  }

  const char* name() const override {
    return traits_of(op_.schema()).name.c_str();
  }
  void visit_operands(orOperandFn_t visit, void* context) const override;

 private:
  // Results that lie outside of their reserved memory, or that have other strides than reserved.
  using Misplaced = c10::SmallVector<std::pair<const Reserved*, Tensor>, 2>;

  c10::OperatorHandle op_;
  torch::jit::Stack stack_; // CPU aliases
  CallKey key_;
  const c10::KernelFunction* random_;
  c10::DispatchKeySet dispatch_;
  c10::SmallVector<Reserved, 2> reserved_;

  void compute(bool again) override;
  Misplaced run_kernel(torch::jit::Stack stack);
  bool is_at_reserved_address(const Reserved& wanted, const Tensor& result) const;
  void move(Misplaced misplaced) const;
};

} // namespace at::openreg
