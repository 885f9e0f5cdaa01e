#pragma once

#include <ATen/core/Generator.h>

#include "../backend.h"

namespace abacus {

// LITERALINCLUDE START: GENERATOR
// The numbers of a generator are a function of a seed and of a place in a sequence, as with CUDA's Philox. So a kernel
// of many threads needs no lock: thread i computes number offset + i.
class Generator final : public c10::GeneratorImpl {
 public:
  Generator() : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  static c10::DeviceType device_type() {
    return kType;
  }
  // The place for a kernel that draws `count` numbers. The next kernel begins behind them. Hold `mutex_` for the call.
  uint64_t take(int64_t count) {
    const uint64_t place = offset_;
    offset_ += count;
    return place;
  }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  Generator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};
// LITERALINCLUDE END: GENERATOR

const at::Generator& default_generator();

} // namespace abacus
