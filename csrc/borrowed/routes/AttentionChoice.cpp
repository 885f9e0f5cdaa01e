#include <ATen/Context.h>

#include "Attention.h"

namespace at::openreg {

bool fused_attention_is_enabled(const sdp::sdp_params&) {
  return globalContext().userEnabledOverrideableSDP();
}

const char* attention_refusal() {
  return kNoViableAttention;
}

} // namespace at::openreg
