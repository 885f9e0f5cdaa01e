#include "Stub.h"

#include <ATen/core/Tensor.h>

#include "KernelScope.h"

namespace at::openreg {

// LITERALINCLUDE START: STUB BODY PREPARE
c10::openreg::StreamLock prepare_for_kernel(TensorIteratorBase& iterator) {
  auto lock = c10::openreg::drain_current_stream(iterator.device().index());
  run_backward_on_this_thread();
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
  return lock;
}
// LITERALINCLUDE END: STUB BODY PREPARE

} // namespace at::openreg
