#include "simulator/borrowed/Stub.h"

#include <ATen/core/Tensor.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStorage.h"
#include "simulator/borrowed/OneTeam.h"

// What StubKernel does before it calls the CPU's inner loop: it begins the kernel, translates the addresses of device
// operands, and casts 0-dim CPU operands. It also makes autograd run a later backward on the thread that calls it
// (OneTeam.h), and names the device operands to the subscribers of openreg_activity.h.
namespace at::openreg {
namespace {

void visit_operands(void* data, orOperandFn_t visit, void* context) {
  auto& iterator = *static_cast<TensorIteratorBase*>(data);
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

} // namespace

IteratorKernel::IteratorKernel(const char* name, TensorIteratorBase& iterator)
    : kernel_(
          c10::openreg::getCurrentOpenRegStream(iterator.device().index()).stream(),
          c10::openreg::OperatorName::current_or(name),
          &visit_operands,
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

} // namespace at::openreg
