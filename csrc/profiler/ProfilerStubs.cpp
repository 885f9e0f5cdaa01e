#include "profiler/ProfilerStubs.h"

#include <c10/util/ApproximateClock.h>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegStream.h"

// Device times for torch.autograd.profiler.profile(use_device="openreg"). PyTorch records an event before and after
// each operator, and asks for the time between them. The counterpart of torch/csrc/profiler/stubs/cuda.cpp.
namespace c10::openreg {
namespace {

class ProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  using VoidEvent = torch::profiler::impl::ProfilerVoidEventStub;

  bool enabled() const override {
    return true;
  }

  void record(DeviceIndex* device, VoidEvent* event, int64_t* cpu_ns) const override {
    const DeviceIndex current = current_device();
    if (device) {
      *device = current;
    }
    const Stream stream = getCurrentOpenRegStream(current);
    event->reset(create_event(stream, orEventEnableTiming), [](void* handle) {
      orEventDestroy(static_cast<orEvent_t>(handle));
    });
    if (cpu_ns) {
      *cpu_ns = getTime();
    }
    OPENREG_CHECK(orEventRecord(handle_of(event), OpenRegStream(stream).stream()));
  }

  // The time between the events in microseconds. Waits for both.
  float elapsed(const VoidEvent* start, const VoidEvent* end) const override {
    OPENREG_CHECK(orEventSynchronize(handle_of(start)));
    OPENREG_CHECK(orEventSynchronize(handle_of(end)));
    float milliseconds = 0;
    OPENREG_CHECK(orEventElapsedTime(&milliseconds, handle_of(start), handle_of(end)));
    return milliseconds * 1000;
  }

  void onEachDevice(std::function<void(int)> fn) const override {
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      const CurrentDevice current(device);
      fn(device);
    }
  }

  void synchronize() const override {
    OPENREG_CHECK(orDeviceSynchronize());
  }

  // Annotations for a vendor's own viewer. This device has none.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

 private:
  static orEvent_t handle_of(const VoidEvent* event) {
    return static_cast<orEvent_t>(event->get());
  }
};

} // namespace

torch::profiler::impl::ProfilerStubs* profiler_stubs() {
  static ProfilerStubs stubs;
  return &stubs;
}

} // namespace c10::openreg
