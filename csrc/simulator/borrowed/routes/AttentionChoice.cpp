#include <ATen/Context.h>

#include "simulator/borrowed/routes/Attention.h"

// The condition under which scaled_dot_product_attention may use the device's fused kernel: the program has not
// switched off the kernels of backends (SDPBackend.OVERRIDEABLE).
namespace at::openreg {

bool fused_attention_is_enabled(const sdp::sdp_params&) {
  return globalContext().userEnabledOverrideableSDP();
}

const char* attention_error() {
  return kNoViableAttention;
}

} // namespace at::openreg
