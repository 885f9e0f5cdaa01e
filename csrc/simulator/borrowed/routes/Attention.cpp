#include "simulator/borrowed/routes/Attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/CpuKernel.h"

namespace at::openreg {
namespace {

bool can_compute(const sdp::sdp_params& params) {
  const Tensor& query = params.query;
  // The conditions of the CPU's flash kernel, in the order of PyTorch's sdp_utils_cpp.cpp. The last condition is there
  // because the kernel computes no gradient of the mask.
  const std::array kTypes{kFloat, kDouble, kBFloat16, kHalf};
  return sdp::check_nested_tensor(params, false) && sdp::check_for_dropout(params, false) &&
         sdp::check_tensor_shapes(params, false) &&
         sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(params, false) &&
         sdp::check_attn_mask_shape(params, false) && query.sym_size(-1) == params.key.sym_size(-1) &&
         query.sym_size(-1) == params.value.sym_size(-1) && sdp::check_nonzero_sequence_lengths_dense(params, false) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>(params, false) &&
         sdp::check_tensor_dtype(params, kTypes, false) && !(params.attn_mask && params.attn_mask->requires_grad());
}

} // namespace

Tensor with_strides_of(const Tensor& tensor, const Tensor& like) {
  return tensor.strides() == like.strides() ? tensor : at::empty_like(like, tensor.options()).copy_(tensor);
}

void refuse_gradient_of_mask(const std::array<bool, 4>& grad_input_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !grad_input_mask[3],
      "The fused attention of the ",
      identity.device,
      " device has no gradient for the mask. Use "
      "torch.nn.attention.sdpa_kernel(SDPBackend.MATH).");
}

int64_t _fused_sdp_choice(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double>,
    bool enable_gqa) {
  const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const sdp::SDPBackend fused = enabled_fused_attention(params);
  if (fused != sdp::SDPBackend::math && can_compute(params)) {
    return static_cast<int64_t>(fused);
  }
  TORCH_CHECK(globalContext().userEnabledMathSDP(), attention_error());
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
_scaled_dot_product_fused_attention_overrideable(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  check_devices<at::_ops::_scaled_dot_product_fused_attention_overrideable>(query, key, value, attn_bias);
  TORCH_CHECK(!return_debug_mask, "return_debug_mask is not supported by the ", identity.device, " device.");
  auto [out, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_bias, scale);
  // The results have the strides and devices that PyTorch's meta kernel gives, because compiled programs rely on both.
  // The two results from at::empty() stand for the seed and the offset of the generator. Their values are undefined:
  // only a kernel with dropout needs them, and this kernel has no dropout.
  const TensorOptions unused = query.options().dtype(kLong);
  return {
      with_strides_of(out, query),
      logsumexp.contiguous(),
      Tensor(),
      Tensor(),
      query.sym_size(2),
      key.sym_size(2),
      at::empty({}, unused),
      at::empty({}, unused),
      Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> _scaled_dot_product_fused_attention_overrideable_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double dropout_p,
    bool is_causal,
    const Tensor&,
    const Tensor&,
    std::optional<double> scale) {
  refuse_gradient_of_mask(grad_input_mask);
  if (!grad_out.defined()) {
    return {};
  }
  const std::optional<Tensor> mask = attn_bias.defined() ? std::optional<Tensor>(attn_bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
  return {
      with_strides_of(grad_query, query), with_strides_of(grad_key, key), with_strides_of(grad_value, value), Tensor()};
}

} // namespace at::openreg
