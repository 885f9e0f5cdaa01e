#pragma once

#include "distributed/Engine.h"

// Reductions on the calling thread. ATen's reductions would start an OpenMP team for each thread that waits for other
// ranks.
namespace c10d::openreg {

// Whether combine() supports the type.
bool can_reduce(at::ScalarType dtype);

// into[i] = a[i] OP b[i]. `into` may be `a` or `b`.
void combine(ReduceOp::RedOpType op, at::ScalarType dtype, void* into, const void* a, const void* b, int64_t numel);

// Divides the data by the reduction's divisor. The quotients of integers are truncated.
void finish_reduction(const Reduction& reduction, at::ScalarType dtype, void* data, int64_t numel);

// The inputs, multiplied by the reduction's factor in new tensors. Without a factor: the inputs themselves.
std::vector<at::Tensor> premultiplied(const Reduction& reduction, const std::vector<at::Tensor>& inputs);

} // namespace c10d::openreg
