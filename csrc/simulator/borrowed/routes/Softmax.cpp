#include "simulator/borrowed/routes/Softmax.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>

#include "simulator/borrowed/CpuKernel.h"

namespace at::openreg {

template <class Op>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  if (!half_to_float) {
    return UnboxedCpuKernel<Op>::call(self, dim, false);
  }
  TORCH_CHECK(self.scalar_type() == kHalf, "conversion is supported for Half type only");
  return UnboxedCpuKernel<Op>::call(self.to(kFloat), dim, false);
}

template <class Op>
Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim, ScalarType input_dtype) {
  const bool half_to_float = grad_output.scalar_type() == kFloat && input_dtype == kHalf;
  const Tensor grad = UnboxedCpuKernel<Op>::call(grad_output, output, dim, half_to_float ? kFloat : input_dtype);
  return half_to_float ? grad.to(kHalf) : grad;
}

template Tensor softmax<at::_ops::_softmax>(const Tensor&, int64_t, bool);
template Tensor softmax<at::_ops::_log_softmax>(const Tensor&, int64_t, bool);
template Tensor softmax_backward<at::_ops::_softmax_backward_data>(const Tensor&, const Tensor&, int64_t, ScalarType);
template Tensor softmax_backward<at::_ops::_log_softmax_backward_data>(
    const Tensor&, const Tensor&, int64_t, ScalarType);

} // namespace at::openreg
