#include <ATen/Context.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include "simulator/borrowed/routes/Attention.h"

// The choice of a backend outside PyTorch: its fused kernel, unless the program has switched off the kernels of such
// backends (SDPBackend.OVERRIDEABLE).
namespace at::openreg {

sdp::SDPBackend enabled_fused_attention(const sdp::sdp_params&) {
  return globalContext().userEnabledOverrideableSDP() ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math;
}

const char* attention_error() {
  return kNoViableAttention;
}

} // namespace at::openreg
