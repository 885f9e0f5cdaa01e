#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include "OpenRegFunctions.h"

// Random numbers of the device.
//
// Rule: the kernels are the CPU's, so the device's generator *is* a CPU generator (Mersenne twister) with the device's
// label. The same seed gives the same numbers as on the CPU, and a kernel draws from cpu_generator(), never from the CPU's
// own default generator.
namespace c10::openreg {

struct OPENREG_API OpenRegGeneratorImpl final : public c10::GeneratorImpl {
  explicit OpenRegGeneratorImpl(DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  static c10::DeviceType device_type();

  // What a CPU kernel draws from. Shared by generators that share a state.
  const at::Generator& cpu_generator() const {
    return engine_;
  }

 private:
  OpenRegGeneratorImpl(DeviceIndex device, at::Generator engine);
  OpenRegGeneratorImpl* clone_impl() const override;

  at::Generator engine_;
};

// The generator that `device` uses when none is given (default: the current device).
OPENREG_API const at::Generator& default_generator(DeviceIndex device = -1);

} // namespace c10::openreg
