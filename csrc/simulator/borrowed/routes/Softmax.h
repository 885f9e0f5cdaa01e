#pragma once

#include <ATen/core/Tensor.h>

// The operators behind softmax and log_softmax. On accelerators they can convert float16 to float32 in the same kernel.
// PyTorch asks for this conversion on a CUDA device, for softmax(x, dtype=torch.float32), which autocast also calls.
// The CPU's kernels refuse to convert.
namespace at::openreg {

// Op is at::_ops::_softmax or at::_ops::_log_softmax.
template <class Op>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float);

// Op is at::_ops::_softmax_backward_data or at::_ops::_log_softmax_backward_data.
template <class Op>
Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim, ScalarType input_dtype);

} // namespace at::openreg
