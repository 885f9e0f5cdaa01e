#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"

// Random numbers of the device.
//
// Rule: the kernels run on the CPU, so the device's generator is a CPU generator, labelled as the device's. By default, it
// is the CPU's own (Mersenne twister): the same seed gives the CPU's numbers (OpenRegRandomEngine.h). A kernel draws from
// cpu_generator(), or, if it is queued, from queued_generator(); never from the CPU's default generator. Kernels draw in
// the order of their launches, whatever their streams: each kernel waits for the one that was launched before it, and the
// host waits for the last one before it reads the state.
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
  // Gives a kernel that is written in Python `increment` numbers, rounded up to whole counters. In a capture, each replay
  // fills in the seed and the offset. Virtual since PyTorch 2.14.
  void philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset, at::Tensor& intragraph_offset);

  static c10::DeviceType device_type();

  // The CPU generator from which kernels draw. Generators that share a state have the same CPU generator. Waits for the
  // queued kernels that draw from it.
  const at::Generator& cpu_generator() const;
  // LITERALINCLUDE END: GENERATOR IMPL

  // Launches a kernel on `stream` that will draw from queued_generator(). `launch` must not wait. If it would have to
  // wait, it returns false, and is called again later.
  void launch_on(Stream stream, const std::function<bool()>& launch);
  const at::Generator& queued_generator() const {
    return engine_->cpu;
  }

  // Until end_capture(), kernels of this capture (OpenRegGraphsC10Utils.h) may draw from the generator. They draw when
  // they run, so each replay continues the sequence. end_capture() returns whether a kernel of the capture draws.
  void begin_capture(uint64_t capture);
  bool end_capture(uint64_t capture);
  uint64_t draws_in(uint64_t capture) const; // how many kernels of the capture draw
  // Orders the stream after all earlier uses of the generator, and later uses after this point of the stream. To be
  // called before and after a replay that draws.
  void order_with_uses(Stream stream);

 private:
  // A CPU generator, and the event after the last queued kernel that draws from it.
  struct SharedEngine {
    at::Generator cpu;
    std::mutex mutex{}; // Guards the members below. A leaf lock. A forked child throws before it takes the lock.
    Stream stream{Stream::DEFAULT, Device(identity.type, 0)};
    orEvent_t last_use = nullptr;              // one of `events`
    std::map<DeviceIndex, orEvent_t> events{}; // One for each device: an event belongs to one device.
    struct CapturedUse {
      Stream stream{Stream::DEFAULT, Device(identity.type, 0)};
      orEvent_t last_use = nullptr; // null: no kernel of the capture draws
      uint64_t draws = 0;           // the number of kernels that draw
    };
    std::map<uint64_t, CapturedUse> captures{}; // the captures whose kernels may draw

    explicit SharedEngine(at::Generator cpu) : cpu(std::move(cpu)) {}
    ~SharedEngine();
  };

  OpenRegGeneratorImpl(DeviceIndex device, std::shared_ptr<SharedEngine> engine);
  OpenRegGeneratorImpl* clone_impl() const override;

  // Called with the lock of the engine.
  void wait_for_last_use(Stream stream);
  void note_use(Stream stream);
  void capture_on(Stream stream, uint64_t capture, const std::function<bool()>& launch);

  // Waits as cpu_generator() does, then takes the CPU generator's lock, which kernels hold while they draw. A capture
  // refuses `call`; CUDA's message begins with `attempt`.
  std::unique_lock<std::mutex> wait_and_lock(const char* call, const char* attempt = "Cannot call ") const;

  std::shared_ptr<SharedEngine> engine_;
};

// The generator from which an operator on `device` draws: `given`, or the default generator of `device`. Throws if
// `given` is a generator of another device type.
OPENREG_API OpenRegGeneratorImpl& generator_of(const std::optional<at::Generator>& given, DeviceIndex device);

// A generator of the program. A capture refuses it, as on CUDA.
OPENREG_API at::Generator new_generator(DeviceIndex device);

// The default generator of `device`; -1 means the current device.
OPENREG_API const at::Generator& default_generator(DeviceIndex device = -1);

} // namespace c10::openreg
