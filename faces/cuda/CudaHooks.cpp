#include "CudaHooks.h"

#include <array>

namespace c10::openreg {

const char* cuda_hooks_failure = nullptr;

std::atomic<int64_t>& max_fft_plans(DeviceIndex device) {
  static auto& sizes = *[] {
    auto* const all = new std::array<std::atomic<int64_t>, 64>; // the limit of OPENREG_DEVICE_COUNT
    for (auto& size : *all) {
      size = 4096; // CUDA's default
    }
    return all;
  }();
  check_device_index(device);
  return sizes[device];
}

} // namespace c10::openreg
