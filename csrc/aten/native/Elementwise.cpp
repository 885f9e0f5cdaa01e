#include "Elementwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_ops.h>

#include "../../runtime/OpenRegStream.h"
#include "OnCpu.h"

namespace at::openreg {

// LITERALINCLUDE START: OVERRIDE DEFAULT BODY
Tensor abs(const Tensor& self) {
  if (!self.is_floating_point()) { // of complex numbers the result is real
    return OnCpu<_ops::abs>::call(self);
  }
  Tensor result;
  auto iterator = TensorIterator::unary_op(result, self);
  at::native::abs_stub(DeviceType::PrivateUse1, iterator);
  return iterator.output();
}
// LITERALINCLUDE END: OVERRIDE DEFAULT BODY

// As cudaMemsetAsync(): after what is queued on the stream. Above the grain size fill_() uses several threads.
Tensor& zero_(Tensor& self) {
  if (self.numel() >= at::internal::GRAIN_SIZE || !self.is_non_overlapping_and_dense()) {
    return self.fill_(0);
  }
  check_memory(*self.unsafeGetTensorImpl(), "aten::zero_");
  const auto stream = c10::openreg::stream_handle(c10::openreg::current_stream(self.device().index()));
  OPENREG_CHECK(orMemsetAsync(self.mutable_data_ptr(), 0, self.nbytes(), stream));
  return self;
}

} // namespace at::openreg
