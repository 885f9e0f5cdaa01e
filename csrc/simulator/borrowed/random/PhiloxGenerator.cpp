#include "simulator/borrowed/random/PhiloxGenerator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DeadlockDetection.h>
#include <openreg.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegRandomEngine.h"
#include "simulator/borrowed/random/RandomChoice.h"

namespace at::openreg {
namespace {

constexpr int64_t kBlock = 256; // the threads of a block: aten/src/ATen/native/cuda/DistributionTemplates.h

// The most threads of one launch: as many as the multiprocessors run together.
int64_t most_threads(c10::DeviceIndex device) {
  orDeviceProp properties{};
  OPENREG_CHECK(orGetDeviceProperties(&properties, device));
  return properties.multiProcessorCount * (properties.maxThreadsPerMultiProcessor / kBlock) * kBlock;
}

const bool registered = [] {
  if (draws_as_gpu) {
    c10::openreg::set_engine_factory([](c10::DeviceIndex device) { return make_generator<PhiloxGenerator>(device); });
  }
  return true;
}();

} // namespace

// Python has checked the variable at `import torch`.
bool chooses_philox() {
  const char* const chosen = std::getenv("OPENREG_RNG");
  return (chosen && *chosen ? chosen : std::string_view(default_random_numbers())) == "philox";
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : GeneratorImpl(Device(kCPU), c10::DispatchKeySet(c10::DispatchKey::CPU)),
      device_of_kernels_(device),
      state_{c10::default_rng_seed_val, 0} {}

c10::DeviceType PhiloxGenerator::device_type() {
  return kCPU;
}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  state_ = {seed, 0};
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(true)); // of 53 bits, as that of a GPU
  return state_.seed;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % kWords == 0, "offset must be a multiple of 4");
  state_.offset = offset;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  PhiloxState given{};
  const auto size = static_cast<size_t>(state.numel());
  if (size == sizeof(PhiloxState) || size == sizeof(PhiloxState::seed)) {
    std::memcpy(&given, state.data(), size);
    set_current_seed(given.seed);
    set_offset(given.offset);
    return;
  }
  static const int64_t size_of_twister = at::detail::createCPUGenerator().get_state().numel();
  TORCH_CHECK(
      state.numel() == size_of_twister,
      "RNG state is wrong size: a state of the ",
      identity.device,
      " device has ",
      sizeof(PhiloxState),
      " bytes, but got ",
      state.numel(),
      ".");
  // The state was saved by a program whose device had the CPU's numbers. The function does not refuse the state, because
  // the call may be queued until the device starts, and an error would then be raised at the start. The first bytes of
  // such a state are the seed.
  std::memcpy(&given.seed, state.data(), sizeof(given.seed));
  set_current_seed(given.seed);
  TORCH_WARN(
      "The random state is a Mersenne twister's: the ",
      identity.device,
      " device starts at the beginning of the sequence of the seed ",
      given.seed,
      ", and gives other numbers. With OPENREG_RNG=cpu it continues the sequence of the state.");
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  const TensorBase state = at::detail::empty_cpu({sizeof(PhiloxState)}, kByte);
  std::memcpy(state.mutable_data_ptr(), &state_, sizeof(PhiloxState));
  return state.getIntrusivePtr();
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* const copy = new PhiloxGenerator(device_of_kernels_);
  copy->state_ = state_;
  return copy;
}

PhiloxStart PhiloxGenerator::advance(uint64_t count) {
  const std::lock_guard lock(mutex_);
  const PhiloxStart start{state_.seed, state_.offset / kWords};
  state_.offset += (count + kWords - 1) / kWords * kWords;
  return start;
}

PhiloxLaunch PhiloxGenerator::launch(int64_t numel, int64_t per_call) {
  const int64_t threads = std::min((numel + kBlock - 1) / kBlock * kBlock, most_threads(device_of_kernels_));
  const int64_t calls = (numel - 1) / (threads * per_call) + 1;
  return {advance(calls * kWords), threads};
}

} // namespace at::openreg
