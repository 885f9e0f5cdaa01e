#include "simulator/borrowed/queue/QueuedKernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_ops.h>

#include <algorithm>

#include "aten/native/Arguments.h"
#include "runtime/OpenRegObserver.h"
#include "simulator/ThreadOwned.h"
#include "simulator/borrowed/Components.h"
#include "simulator/borrowed/KernelAllocations.h"
#include "simulator/borrowed/KernelScope.h"

namespace at::openreg {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// The tensors of `values`, with the components of a sparse tensor in its place.
torch::jit::Stack components_of(const torch::jit::Stack& values) {
  torch::jit::Stack components;
  for (const c10::IValue& value : values) {
    for_each_component(*value.toTensor().unsafeGetTensorImpl(), [&](const TensorImpl& part) {
      components.emplace_back(new_reference(&part));
    });
  }
  return components;
}

bool is_copy(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::copy_";
}

} // namespace

Tensor make_result(Tensor&& meta, c10::DeviceIndex device, Reserved& reserved) {
  c10::openreg::notify_new_tensor(meta.dtype());
  auto memory = c10::openreg::make_storage(
      at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.element_size()), device);
  reserved.memory = c10::openreg::cpu_view_of(memory.get());
  reserved.shape.set_sizes(meta.sizes());
  reserved.shape.set_strides(meta.strides());
  reserved.dtype = meta.dtype();
  return relabel(std::move(meta), std::move(memory));
}

void QueuedKernel::visit_operands(orOperandFn_t visit, void* context) const {
  const auto& arguments = op_.schema().arguments();
  const OperatorTraits& traits = traits_of(op_.schema());
  const auto training = traits.keeps_statistics ? op_.schema().argumentIndexWithName("training") : std::nullopt;
  const bool trains = !training || stack_[*training].toBool();
  for (size_t i = 0; i < stack_.size(); ++i) {
    const unsigned access = !is_written(traits, arguments[i], trains) ? orAccessRead
                            : is_copy(op_) || arguments[i].is_out()   ? orAccessWrite
                                                                      : orAccessRead | orAccessWrite;
    for_each_tensor(stack_[i], [&](const Tensor& tensor) {
      if (tensor.defined()) {
        for_each_component(*tensor.unsafeGetTensorImpl(), [&](const TensorImpl& part) {
          c10::openreg::visit_tensor(part, access, visit, context);
        });
      }
    });
  }
  for (const Reserved& result : reserved_) {
    if (result.memory) {
      const orOperand whole{
          orGetDevicePointer(result.memory->data()), result.memory->nbytes(), 0, nullptr, nullptr, orAccessWrite};
      visit(&whole, context);
    }
  }
}

void QueuedKernel::compute(bool again) {
  move(run_kernel(again ? stack_ : std::move(stack_)));
}

QueuedKernel::Misplaced QueuedKernel::run_kernel(torch::jit::Stack stack) {
  c10::SmallVector<c10::StorageImpl*, 4> memory;
  for (const Reserved& each : reserved_) {
    if (each.memory && each.memory->nbytes() > 0) {
      memory.push_back(each.memory.get());
    }
  }
  c10::openreg::KernelAllocations allocations(memory, memory.empty() ? 0 : results_of(key_));
  if (C10_UNLIKELY(random_)) {
    random_->callBoxed(op_, kCpu, &stack);
  } else {
    op_.redispatchBoxed(dispatch_, &stack);
    if (C10_UNLIKELY(dispatch_ != kCpu)) {
      stack = components_of(stack);
    }
  }
  Misplaced misplaced;
  for (size_t i = 0; i < reserved_.size(); ++i) {
    const Tensor& result = stack[i].toTensor();
    if (!is_at_reserved_address(reserved_[i], result)) {
      misplaced.emplace_back(&reserved_[i], result);
    }
    if (reserved_[i].memory && result.has_storage() && result.storage().nbytes() > 0) {
      allocations.note_result(result.storage().data());
    }
  }
  if (const auto results = allocations.correction(); C10_UNLIKELY(results.has_value())) {
    note_results(key_, *results);
  }
  return misplaced;
}

bool QueuedKernel::is_at_reserved_address(const Reserved& wanted, const Tensor& result) const {
  // The caller did not ask for this result. The kernel may compute it all the same: oneDNN computes the gradients of a
  // weight and of a bias together.
  if (!wanted.memory) {
    return true;
  }
  TORCH_INTERNAL_ASSERT(
      result.defined() && result.sizes() == wanted.shape.sizes_arrayref() && result.dtype() == wanted.dtype &&
          !result.is_conj() && !result.is_neg(),
      "the meta kernel of ",
      op_.operator_name(),
      " computed ",
      c10::str(wanted.dtype, wanted.shape.sizes_arrayref()),
      ", and the kernel gave ",
      result.defined() ? c10::str(result.dtype(), result.sizes()) : "no tensor");
  return result.const_data_ptr() == wanted.memory->data() && result.strides() == wanted.shape.strides_arrayref();
}

void QueuedKernel::move(Misplaced misplaced) const {
  for (auto& [wanted, result] : misplaced) {
    const void* data = result.storage().data();
    if (std::any_of(reserved_.begin(), reserved_.end(), [&](const Reserved& other) {
          return other.memory && other.memory->data() == data;
        })) {
      result = result.clone(); // the result lies in the memory of another result
    }
  }
  for (auto& [wanted, result] : misplaced) {
    Tensor destination = make_like(wanted->memory, c10::DispatchKey::CPU, *result.unsafeGetTensorImpl());
    destination.unsafeGetTensorImpl()->set_sizes_and_strides(
        wanted->shape.sizes_arrayref(), wanted->shape.strides_arrayref(), 0);
    at::_ops::copy_::redispatch(kCpu, destination, result, false);
  }
}

} // namespace at::openreg
