#include <ATen/Context.h>

#include "aten/native/Attention.h"

namespace at::openreg {
namespace {

// Whether CUDA would have a fused kernel for such operands among those that the program left on (torch.backends.cuda,
// torch.nn.attention.sdpa_kernel), as select_sdp_backend(), aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
// chooses on a GPU without cuDNN. All of them are computed by one kernel here.
bool is_enabled(const Context& context, ScalarType type, bool has_mask) {
  const bool flash = context.userEnabledFlashSDP() && (type == kHalf || type == kBFloat16) && !has_mask;
  const bool efficient = context.userEnabledMemEfficientSDP() && type != kDouble;
  return flash || efficient || context.userEnabledOverrideableSDP();
}

} // namespace

int64_t _fused_sdp_choice(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double>,
    bool enable_gqa) {
  const Context& context = globalContext();
  if (is_enabled(context, query.scalar_type(), attn_mask.has_value()) &&
      fused_attention_can_compute({query, key, value, attn_mask, dropout_p, is_causal, enable_gqa})) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  if (context.userEnabledMathSDP()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  TORCH_CHECK(
      !context.userEnabledFlashSDP() && !context.userEnabledMemEfficientSDP() && !context.userEnabledCuDNNSDP(),
      "No available kernel. Aborting execution.");
  TORCH_CHECK(
      false,
      "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math "
      "kernel and the fused kernels.");
}

} // namespace at::openreg
