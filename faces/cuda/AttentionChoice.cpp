#include <ATen/Context.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include "borrowed/routes/Attention.h"

namespace at::openreg {

// Whether CUDA would have a fused kernel for these operands among the kernels that the program has enabled
// (torch.backends.cuda, torch.nn.attention.sdpa_kernel). The choice is that of select_sdp_backend()
// (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp) on a GPU without cuDNN. Here one kernel computes all of them.
bool fused_attention_is_enabled(const sdp::sdp_params& params) {
  const auto& context = globalContext();
  const ScalarType type = params.query.scalar_type();
  const bool flash = context.userEnabledFlashSDP() && (type == kHalf || type == kBFloat16) && !params.attn_mask;
  const bool efficient = context.userEnabledMemEfficientSDP() && type != kDouble;
  return flash || efficient || context.userEnabledOverrideableSDP();
}

// CUDA's sentence, if a fused kernel is enabled but cannot compute the case.
const char* attention_refusal() {
  const auto& context = globalContext();
  const bool is_on =
      context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
  return is_on ? "No available kernel. Aborting execution." : kNoViableAttention;
}

} // namespace at::openreg
