#include "runtime/OpenRegKernel.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <utility>

// What the subscribers of openreg_activity.h get of a kernel: the bytes of its operands, and the name of its operator.
// And what the text of a kernel's failure says: the place in the program that launched the kernel.
namespace c10::openreg {
namespace {

thread_local const char* operator_name = nullptr;

std::atomic<LaunchSite> launch_site{nullptr};

} // namespace

void visit_tensor(const TensorImpl& tensor, unsigned access, orOperandFn_t visit, void* context) {
  if (tensor.numel() == 0 || !tensor.has_storage()) {
    return;
  }
  // The tensor may carry an address of the kernel window (openreg.h, section Memory, explains the two windows).
  // Subscribers of openreg_activity.h know memory by its address in the device window.
  const auto* base = static_cast<const char*>(orGetDevicePointer(tensor.storage().data()));
  const size_t item = tensor.dtype().itemsize();
  orOperand operand{base + tensor.storage_offset() * item, item, 0, nullptr, nullptr, access};
  c10::SmallVector<int64_t, 6> strides(tensor.strides());
  for (int64_t& stride : strides) {
    stride *= static_cast<int64_t>(item);
  }
  operand.dims = static_cast<int>(tensor.dim());
  operand.sizes = tensor.sizes().data();
  operand.strides = strides.data();
  visit(&operand, context);
}

const char* CurrentOperator::get_or(const char* name) {
  return operator_name != nullptr ? operator_name : name;
}

const char* CurrentOperator::exchange(const char* name) {
  return std::exchange(operator_name, name);
}

void set_launch_site(LaunchSite site) {
  launch_site.store(site, std::memory_order_relaxed);
}

std::string launched_at() {
  const LaunchSite site = launch_site.load(std::memory_order_relaxed);
  return site ? ", launched at " + site() : std::string();
}

} // namespace c10::openreg
