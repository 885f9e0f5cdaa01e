#include "DeviceCheck.h"

#include <algorithm>

#include "../../runtime/OpenRegStream.h"

namespace at::openreg {

void DeviceCheck::check_mixed() const {
  traits_.rule.check(traits_.rule, operands_);
  // The rule has accepted the mix. CUDA would now wait for the value of an operand on another device.
  for (const Operand& each : operands_) {
    if (is_elsewhere(each)) {
      OPENREG_CHECK(orStreamSynchronize(c10::openreg::current_stream_handle(each.tensor->device().index())));
    }
  }
}

bool DeviceCheck::spans_devices() const {
  return mixed_ &&
         std::any_of(operands_.begin(), operands_.end(), [this](const Operand& each) { return is_elsewhere(each); });
}

} // namespace at::openreg
