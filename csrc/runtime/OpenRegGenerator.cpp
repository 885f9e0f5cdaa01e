#include "OpenRegGenerator.h"

#include <mutex>
#include <vector>

namespace c10::openreg {

OpenRegGeneratorImpl::OpenRegGeneratorImpl(DeviceIndex device)
    : OpenRegGeneratorImpl(device, at::detail::createCPUGenerator()) {}

OpenRegGeneratorImpl::OpenRegGeneratorImpl(DeviceIndex device, at::Generator engine)
    : GeneratorImpl(Device(DeviceType::PrivateUse1, device), DispatchKeySet(DispatchKey::PrivateUse1)),
      engine_(std::move(engine)) {}

void OpenRegGeneratorImpl::set_current_seed(uint64_t seed) {
  const std::lock_guard lock(engine_.unsafeGetGeneratorImpl()->mutex_); // the one that kernels hold while they draw
  engine_.set_current_seed(seed);
}

uint64_t OpenRegGeneratorImpl::current_seed() const {
  const std::lock_guard lock(engine_.unsafeGetGeneratorImpl()->mutex_); // the one that kernels hold while they draw
  return engine_.current_seed();
}

uint64_t OpenRegGeneratorImpl::seed() {
  const std::lock_guard lock(engine_.unsafeGetGeneratorImpl()->mutex_); // the one that kernels hold while they draw
  return engine_.seed();
}

// A Mersenne twister has no offset: the CPU generator's own refusal.
void OpenRegGeneratorImpl::set_offset(uint64_t offset) {
  engine_.set_offset(offset);
}

uint64_t OpenRegGeneratorImpl::get_offset() const {
  return engine_.get_offset();
}

void OpenRegGeneratorImpl::set_state(const c10::TensorImpl& state) {
  const std::lock_guard lock(engine_.unsafeGetGeneratorImpl()->mutex_); // the one that kernels hold while they draw
  engine_.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> OpenRegGeneratorImpl::get_state() const {
  const std::lock_guard lock(engine_.unsafeGetGeneratorImpl()->mutex_); // the one that kernels hold while they draw
  return engine_.unsafeGetGeneratorImpl()->get_state();
}

void OpenRegGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* impl = dynamic_cast<OpenRegGeneratorImpl*>(other.get());
  TORCH_CHECK(impl, "Expected a generator of the openreg device, but got one of ", other->device(), ".");
  engine_ = impl->engine_;
}

c10::intrusive_ptr<c10::GeneratorImpl> OpenRegGeneratorImpl::graphsafe_get_state() const {
  return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(new OpenRegGeneratorImpl(device().index(), engine_));
}

OpenRegGeneratorImpl* OpenRegGeneratorImpl::clone_impl() const {
  return new OpenRegGeneratorImpl(device().index(), engine_.clone());
}

c10::DeviceType OpenRegGeneratorImpl::device_type() {
  return DeviceType::PrivateUse1;
}

const at::Generator& default_generator(DeviceIndex device) {
  // Made together, so that torch.manual_seed() reaches the devices that were not used yet.
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (DeviceIndex i = 0; i < device_count(); ++i) {
      all->push_back(at::make_generator<OpenRegGeneratorImpl>(i));
      all->back().seed();
    }
    return all;
  }();
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  return (*generators)[device];
}

} // namespace c10::openreg
