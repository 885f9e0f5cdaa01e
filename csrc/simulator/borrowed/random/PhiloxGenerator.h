#pragma once

#include <ATen/core/Generator.h>

#include "simulator/borrowed/random/Philox.h"

// A generator with a seed and an offset, as that of a GPU: aten/src/ATen/cuda/CUDAGeneratorImpl.cpp. It has the type of
// the CPU, because the kernels that draw from it (RandomKernels.h) run on aliases.
namespace at::openreg {

// How a GPU launches a kernel that draws.
struct PhiloxLaunch {
  PhiloxStart start;
  int64_t threads; // a multiple of kLanes
};

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device); // the device whose kernels draw

  void set_current_seed(uint64_t seed) override; // sets the offset to 0
  uint64_t current_seed() const override {
    return state_.seed;
  }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override {
    return state_.offset;
  }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static c10::DeviceType device_type();

  // Launches a kernel that draws `numel` elements, `per_call` in each call of a thread. Advances the offset.
  PhiloxLaunch launch(int64_t numel, int64_t per_call);

  // Where a kernel begins that draws up to `count` words in a thread. Advances the offset by `count`, rounded up to whole
  // calls.
  PhiloxStart advance(uint64_t count);

 private:
  // The bytes of a state. The offset counts the words of each thread.
  struct PhiloxState {
    uint64_t seed;
    uint64_t offset;
  };

  const c10::DeviceIndex device_of_kernels_;
  PhiloxState state_;

  PhiloxGenerator* clone_impl() const override;
};

// Whether the device draws the numbers of a GPU (OPENREG_RNG, RandomChoice.h). If so, each generator from which a kernel
// draws is a PhiloxGenerator; otherwise none is.
bool chooses_philox();
inline const bool draws_as_gpu = chooses_philox();

} // namespace at::openreg
