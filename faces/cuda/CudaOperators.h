#pragma once

#include <ATen/core/Tensor.h>

namespace at::openreg {

// Whether CUDA would have a fused kernel for such operands among those that the program left on (torch.backends.cuda,
// torch.nn.attention.sdpa_kernel). All of them are computed by one kernel here.
bool fused_attention_is_enabled(const Tensor& query, const std::optional<Tensor>& mask);

// Raises what CUDA says where a fused kernel is on, but none can compute the case; else an empty text.
const char* refuse_attention();

} // namespace at::openreg
