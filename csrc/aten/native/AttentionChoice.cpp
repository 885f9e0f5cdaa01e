#include <ATen/Context.h>

#include "Attention.h"

namespace at::openreg {

int64_t _fused_sdp_choice(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double>,
    bool enable_gqa) {
  if (globalContext().userEnabledOverrideableSDP() &&
      fused_attention_can_compute({query, key, value, attn_mask, dropout_p, is_causal, enable_gqa})) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  TORCH_CHECK(
      globalContext().userEnabledMathSDP(),
      "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math "
      "kernel and the fused kernels.");
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

} // namespace at::openreg
