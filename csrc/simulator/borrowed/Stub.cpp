#include "simulator/borrowed/Stub.h"

#include <ATen/core/Tensor.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStorage.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/OpenMPTeam.h"
#include "simulator/borrowed/queue/Operands.h"

// What StubKernel does before it calls the CPU's inner loop: it begins or queues the kernel, translates the addresses
// of device operands, and casts 0-dim CPU operands. It also makes autograd run a later backward on the thread that
// calls it (OpenMPTeam.h), and names the device operands to the subscribers of openreg_activity.h.
namespace at::openreg {
namespace {

void visit_operands(const void* data, orOperandFn_t visit, void* context) {
  const auto& iterator = *static_cast<const TensorIteratorBase*>(data);
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const OperandInfo& operand = iterator.operand(i);
    if (operand.device->type() == identity.type) {
      const unsigned read = operand.is_output && !operand.is_read_write ? 0 : orAccessRead;
      // The shape is the tensor's, because the iterator has coalesced and reordered dimensions.
      c10::openreg::visit_tensor(
          *operand.tensor_base().unsafeGetTensorImpl(), read | (operand.is_output ? orAccessWrite : 0), visit, context);
    }
  }
}

// Casts a 0-dim CPU operand (the 2 in `x + 2`, or a CPU scalar tensor) to the common dtype.
C10_NOINLINE void cast_cpu_scalar(OperandInfo& operand, ScalarType dtype) {
  operand.exchange_tensor(c10::MaybeOwned<TensorBase>::owned(operand.tensor().to(dtype)));
  operand.current_dtype = operand.target_dtype = dtype;
  operand.data = operand.tensor_base().mutable_data_ptr();
}

// The same for a queued kernel, which may run after the tensor is gone or has another value. Nobody can change a Python
// number. The operand keeps the value before the cast too: kernels of half precision compute with that value.
C10_NOINLINE void own_cpu_scalar(OperandInfo& operand, ScalarType dtype) {
  const Tensor& tensor = operand.tensor();
  const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  operand.tensor(c10::MaybeOwned<TensorBase>::owned(is_number ? Tensor(tensor) : tensor.clone()));
  operand.data = operand.tensor_base().mutable_data_ptr();
  if (operand.current_dtype != dtype) {
    cast_cpu_scalar(operand, dtype);
  }
}

} // namespace

IteratorKernel::IteratorKernel(const char* name, TensorIteratorBase& iterator)
    : kernel_(
          c10::openreg::current_stream_handle(iterator.device().index()),
          c10::openreg::CurrentOperator::current_or(name),
          [](void* data, orOperandFn_t visit, void* context) { openreg::visit_operands(data, visit, context); },
          &iterator) {
  run_backward_on_this_thread();
  for (int i = 0; i < iterator.ntensors(); ++i) {
    OperandInfo& operand = iterator.operand(i);
    if (operand.device->type() == identity.type) {
      void* const data = orGetKernelPointer(operand.data);
      if (C10_UNLIKELY(data == operand.data)) { // not device memory: the address is unchanged
        c10::openreg::check_memory(*operand.tensor_base().unsafeGetTensorImpl(), "an elementwise kernel");
      }
      operand.data = data;
    } else if (operand.current_dtype != iterator.common_dtype()) {
      cast_cpu_scalar(operand, iterator.common_dtype());
    }
  }
}

bool can_be_queued(const TensorIteratorBase& iterator) {
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const OperandInfo& operand = iterator.operand(i);
    if (operand.device->type() == identity.type) {
      const TensorBase& tensor = operand.tensor_base();
      const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      const bool lacks_memory = !storage->data() && tensor.numel() > 0;
      if (lacks_memory || !may_be_queued(storage)) {
        return false;
      }
    }
  }
  return true;
}

QueuedIterator::QueuedIterator(const char* name, const TensorIteratorBase& iterator)
    : iterator_(iterator), name_(c10::openreg::CurrentOperator::current_or(name)) {
  run_backward_on_this_thread();
  for (int i = 0; i < iterator_.ntensors(); ++i) {
    OperandInfo& operand = iterator_.operand(i);
    if (operand.device->type() == identity.type) {
      const TensorBase& tensor = operand.tensor_base();
      operand.data = orGetKernelPointer(operand.data);
      operand.tensor(
          c10::MaybeOwned<TensorBase>::owned(make_like(
              c10::openreg::cpu_view_of(tensor.storage().unsafeGetStorageImpl()),
              c10::DispatchKey::CPU,
              *tensor.unsafeGetTensorImpl())));
    } else {
      own_cpu_scalar(operand, iterator_.common_dtype());
    }
  }
}

void QueuedIterator::visit_operands(orOperandFn_t visit, void* context) const {
  openreg::visit_operands(&iterator_, visit, context);
}

void launch(std::unique_ptr<QueuedWork> kernel, const TensorIteratorBase& iterator) {
  launch(c10::openreg::getCurrentOpenRegStream(iterator.device().index()), kernel);
}

} // namespace at::openreg
