#pragma once

#include <ATen/core/Tensor.h>

// The operators behind softmax and log_softmax. On accelerators they can convert on the way: float16 in, float32 out,
// in one kernel. PyTorch asks a CUDA device for that (softmax(x, dtype=torch.float32), as autocast calls it), and the
// CPU's kernels refuse it.
namespace at::openreg {

// Op is at::_ops::_softmax or at::_ops::_log_softmax.
template <class Op>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float);

// Op is the backward of one of them.
template <class Op>
Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim, ScalarType input_dtype);

} // namespace at::openreg
