#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

// The fused attention kernel that a backend may supply ("overrideable"). PyTorch calls it in place of the composite
// kernel. Here it is the CPU's flash attention kernel.
namespace at::openreg {

// Chooses the kernel that scaled_dot_product_attention calls, and returns its SDPBackend: a fused kernel, if the program
// has not switched it off and it supports the operands; otherwise math, the composite kernel. Throws if math would be the
// choice, but the program has switched math off.
int64_t _fused_sdp_choice(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa);

// The first function returns the fused kernel that is switched on for such operands; math if there is none. The second
// one returns the message of the error if no kernel that is switched on supports the operands. Both are in
// AttentionChoice.cpp.
sdp::SDPBackend enabled_fused_attention(const sdp::sdp_params& params);
const char* attention_error();

inline constexpr const char* kNoViableAttention =
    "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math "
    "kernel and the fused kernels.";

// Returns `tensor` with the strides of at::empty_like(like). PyTorch's meta kernels give these strides, and a compiled
// program relies on them.
Tensor with_strides_of(const Tensor& tensor, const Tensor& like);

// Throws if the backward of a fused kernel is asked for the gradient of the mask, which the CPU's kernel does not have.
void refuse_gradient_of_mask(const std::array<bool, 4>& grad_input_mask);

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
_scaled_dot_product_fused_attention_overrideable(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale);

std::tuple<Tensor, Tensor, Tensor, Tensor> _scaled_dot_product_fused_attention_overrideable_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor& cum_seq_q,
    const Tensor& cum_seq_k,
    c10::SymInt max_q,
    c10::SymInt max_k,
    double dropout_p,
    bool is_causal,
    const Tensor& philox_seed,
    const Tensor& philox_offset,
    std::optional<double> scale);

} // namespace at::openreg
