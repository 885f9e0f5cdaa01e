#include "simulator/borrowed/routes/Abs.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_ops.h>

#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/CpuKernel.h"

namespace at::openreg {

Tensor abs(const Tensor& self) {
  if (!self.is_floating_point()) { // integers and complex numbers; the result for complex is real
    return UnboxedCpuKernel<_ops::abs>::call(self);
  }
  Tensor result;
  auto iterator = TensorIterator::unary_op(result, self);
  at::native::abs_stub(identity.type, iterator);
  return iterator.output();
}

} // namespace at::openreg
