#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "OpenRegStream.h"

// Random numbers of the device.
//
// Rule: the kernels are the CPU's, so the device's generator *is* a CPU generator (Mersenne twister) with the device's
// label. The same seed gives the same numbers as on the CPU, and a kernel draws from cpu_generator(), never from the
// CPU's own default generator. Kernels draw in the order in which they were launched, on whatever stream: each waits
// for the last one that was queued, and so does the host before it looks at the state.
namespace c10::openreg {

// LITERALINCLUDE START: GENERATOR IMPL
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

  // What a CPU kernel draws from. Shared by generators that share a state. Waits for queued kernels that draw from it.
  const at::Generator& cpu_generator() const;
  // LITERALINCLUDE END: GENERATOR IMPL

  // Launches a kernel that will draw from queued_generator() on `stream`. `launch` may not wait: it returns false where it
  // would have to, and is called again later.
  void launch_on(Stream stream, const std::function<bool()>& launch);
  const at::Generator& queued_generator() const {
    return engine_->cpu;
  }

 private:
  // A Mersenne twister, and a mark in the stream where the last kernel that draws from it was queued.
  struct Engine {
    at::Generator cpu;
    std::mutex mutex{}; // of what follows; leaf. A forked child is refused before
    Stream stream{Stream::DEFAULT, Device(DeviceType::PrivateUse1, 0)};
    orEvent_t last_use = nullptr;              // one of `events`
    std::map<DeviceIndex, orEvent_t> events{}; // an event is of one device

    explicit Engine(at::Generator cpu) : cpu(std::move(cpu)) {}
    ~Engine();
  };

  OpenRegGeneratorImpl(DeviceIndex device, std::shared_ptr<Engine> engine);
  OpenRegGeneratorImpl* clone_impl() const override;

  // Also takes the lock that kernels hold while they draw.
  std::unique_lock<std::mutex> wait_and_lock() const;

  std::shared_ptr<Engine> engine_;
};

// The generator that an operator on `device` draws from: the one it was given, or the device's. Throws for another
// device's.
OPENREG_API OpenRegGeneratorImpl& generator_of(const std::optional<at::Generator>& given, DeviceIndex device);

// The generator that `device` uses when none is given (default: the current device).
OPENREG_API const at::Generator& default_generator(DeviceIndex device = -1);

} // namespace c10::openreg
