#include "Stub.h"

#include <ATen/core/Tensor.h>

#include "KernelScope.h"

namespace at::openreg {
namespace {

void visit_operands(void* data, orOperandFn_t visit, void* context) {
  auto& iterator = *static_cast<TensorIteratorBase*>(data);
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const OperandInfo& operand = iterator.operand(i);
    if (operand.device->is_privateuseone()) {
      const unsigned read = operand.is_output && !operand.is_read_write ? 0 : orAccessRead;
      const orOperand range{
          orGetDevicePointer(operand.data), // at the kernel's end it is shifted
          static_cast<size_t>(iterator.element_size(i)),
          iterator.ndim(),
          iterator.shape().data(),
          operand.stride_bytes.data(),
          read | (operand.is_output ? orAccessWrite : 0)};
      visit(&range, context);
    }
  }
}

} // namespace

// LITERALINCLUDE START: STUB BODY PREPARE
void begin_kernel(c10::openreg::Kernel& kernel, const char* name, TensorIteratorBase& iterator) {
  run_backward_on_this_thread();
  const char* const op = c10::openreg::OperatorName::current();
  kernel.begin(
      c10::openreg::current_stream_handle(iterator.device().index()), op ? op : name, &visit_operands, &iterator);
  for (int i = 0; i < iterator.ntensors(); ++i) {
    OperandInfo& operand = iterator.operand(i);
    if (operand.device->is_privateuseone()) {
      check_memory(*operand.tensor_base().unsafeGetTensorImpl(), "an elementwise kernel");
      operand.data = orGetKernelPointer(operand.data);
    } else if (operand.current_dtype != iterator.common_dtype()) { // the number of `x + 2`
      const ScalarType dtype = iterator.common_dtype();
      operand.exchange_tensor(c10::MaybeOwned<TensorBase>::owned(operand.tensor().to(dtype)));
      operand.current_dtype = operand.target_dtype = dtype;
      operand.data = operand.tensor_base().mutable_data_ptr();
    }
  }
}
// LITERALINCLUDE END: STUB BODY PREPARE

} // namespace at::openreg
