#include "aten/native/DeviceCheck.h"

#include <algorithm>

#include "runtime/OpenRegStream.h"

namespace at::openreg {

void DeviceCheck::check_mixed() const {
  traits_.rule.check(traits_.rule, operands_);
  if (traits_.sync && traits_.sync->copies && traits_.sync->copies({operands_, {}})) {
    c10::openreg::getCurrentOpenRegStream(device_).synchronize();
  }
  // The rule has accepted the mix. PyTorch's CUDA kernel would now read or copy the operand of the other device and
  // wait for it. So this thread waits for the current stream of that device.
  for (const Operand& each : operands_) {
    if (is_elsewhere(each)) {
      OPENREG_CHECK(orStreamSynchronize(c10::openreg::getCurrentOpenRegStream(each.tensor->device().index()).stream()));
    }
  }
}

bool DeviceCheck::spans_devices() const {
  return mixed_ &&
         std::any_of(operands_.begin(), operands_.end(), [this](const Operand& each) { return is_elsewhere(each); });
}

} // namespace at::openreg
