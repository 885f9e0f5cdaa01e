#include "Stub.h"

#include <ATen/core/Tensor.h>

#include "../runtime/OpenRegStorage.h"
#include "OneTeam.h"

namespace at::openreg {
namespace {

void visit_operands(void* data, orOperandFn_t visit, void* context) {
  auto& iterator = *static_cast<TensorIteratorBase*>(data);
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const OperandInfo& operand = iterator.operand(i);
    if (operand.device->is_privateuseone()) {
      const unsigned read = operand.is_output && !operand.is_read_write ? 0 : orAccessRead;
      // The shape is the tensor's, because the iterator has joined and reordered dimensions.
      c10::openreg::visit_tensor(
          *operand.tensor_base().unsafeGetTensorImpl(), read | (operand.is_output ? orAccessWrite : 0), visit, context);
    }
  }
}

orStream_t stream_of(const TensorIteratorBase& iterator) {
  run_backward_on_this_thread();
  return c10::openreg::current_stream_handle(iterator.device().index());
}

// Casts a number, such as 2 in `x + 2`.
C10_NOINLINE void cast_number(OperandInfo& operand, ScalarType dtype) {
  operand.exchange_tensor(c10::MaybeOwned<TensorBase>::owned(operand.tensor().to(dtype)));
  operand.current_dtype = operand.target_dtype = dtype;
  operand.data = operand.tensor_base().mutable_data_ptr();
}

} // namespace

// LITERALINCLUDE START: STUB BODY PREPARE
IteratorKernel::IteratorKernel(const char* name, TensorIteratorBase& iterator)
    : kernel_(stream_of(iterator), c10::openreg::OperatorName::current_or(name), &visit_operands, &iterator) {
  for (int i = 0; i < iterator.ntensors(); ++i) {
    OperandInfo& operand = iterator.operand(i);
    if (operand.device->is_privateuseone()) {
      void* const data = orGetKernelPointer(operand.data);
      if (C10_UNLIKELY(data == operand.data)) { // no device memory
        c10::openreg::check_memory(*operand.tensor_base().unsafeGetTensorImpl(), "an elementwise kernel");
      }
      operand.data = data;
    } else if (operand.current_dtype != iterator.common_dtype()) {
      cast_number(operand, iterator.common_dtype());
    }
  }
}
// LITERALINCLUDE END: STUB BODY PREPARE

} // namespace at::openreg
