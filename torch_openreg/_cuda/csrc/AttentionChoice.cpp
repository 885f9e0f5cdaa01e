#include <ATen/Context.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include "runtime/OpenRegException.h"
#include "simulator/borrowed/routes/Attention.h"

namespace at::openreg {
namespace {

bool is_sm80_or_later(Device device) {
  orDeviceProp properties{};
  OPENREG_CHECK(orGetDeviceProperties(&properties, device.index()));
  return properties.major >= 8;
}

} // namespace

// The fused kernel that CUDA would choose for these operands among the kernels that the program has enabled
// (torch.backends.cuda, torch.nn.attention.sdpa_kernel). The choice is that of select_sdp_backend()
// (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp) on a GPU without cuDNN. SDPBackend.OVERRIDEABLE is for backends
// outside PyTorch. It enables no kernel here, as on CUDA.
sdp::SDPBackend enabled_fused_attention(const sdp::sdp_params& params) {
  const auto& context = globalContext();
  const ScalarType type = params.query.scalar_type();
  // In sdp_utils.cpp, check_flash_attention_hardware_support() and less_than_sm80_mem_efficient_dtypes depend on the
  // device's compute capability.
  if (context.userEnabledFlashSDP() && (type == kHalf || type == kBFloat16) && !params.attn_mask &&
      is_sm80_or_later(params.query.device())) {
    return sdp::SDPBackend::flash_attention;
  }
  if (context.userEnabledMemEfficientSDP() && type != kDouble &&
      (type != kBFloat16 || is_sm80_or_later(params.query.device())) &&
      params.query.sym_size(1) == params.key.sym_size(1)) {
    return sdp::SDPBackend::efficient_attention;
  }
  return sdp::SDPBackend::math;
}

// The message of the error if no kernel that is enabled supports the operands. CUDA has three such messages. The choice
// depends on which kernels are enabled.
const char* attention_error() {
  const auto& context = globalContext();
  const bool is_on =
      context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
  if (!is_on) {
    return kNoViableAttention;
  }
  return context.userEnabledOverrideableSDP() ? "Invalid backend" : "No available kernel. Aborting execution.";
}

} // namespace at::openreg
