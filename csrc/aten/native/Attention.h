#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

// The attention a backend may supply in place of the composite one ("overrideable"): here the CPU's flash kernel.
namespace at::openreg {

bool fused_attention_can_compute(const sdp::sdp_params& params);

// Which kernel scaled_dot_product_attention takes: the overrideable one if the program left it on and it can
// compute the case, else the composite (AttentionChoice.cpp).
int64_t _fused_sdp_choice(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa);

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
