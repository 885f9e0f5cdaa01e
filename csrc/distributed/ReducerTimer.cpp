#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegStream.h"

// The timer of DistributedDataParallel: the times when the device reaches the parts of a training step. If a device
// type has no timer, the statistics of DDP have no times.
namespace c10d::openreg {
namespace {

class ReducerTimer final : public c10d::Timer {
 public:
  explicit ReducerTimer(c10::Device device) : device_(device) {
    for (orEvent_t& event : events_) {
      event = c10::openreg::create_event(c10::openreg::getCurrentOpenRegStream(device.index()), orEventEnableTiming);
    }
  }

  ~ReducerTimer() override {
    for (const orEvent_t event : events_) {
      orEventDestroy(event);
    }
  }

  void record(Event event) override {
    Timer::record(event); // stores the time of the host
    OPENREG_CHECK(orEventRecord(
        events_[static_cast<size_t>(event)], c10::openreg::getCurrentOpenRegStream(device_.index()).stream()));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    if (getTimeRef(start) == kUnsetTime || getTimeRef(end) == kUnsetTime) {
      return std::nullopt;
    }
    const orEvent_t last = events_[static_cast<size_t>(end)];
    OPENREG_CHECK(orEventSynchronize(last));
    float milliseconds = 0;
    OPENREG_CHECK(orEventElapsedTime(&milliseconds, events_[static_cast<size_t>(start)], last));
    // The difference is negative if the end was recorded in an earlier step than the start.
    return milliseconds < 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  const c10::Device device_;
  std::array<orEvent_t, 5> events_{}; // one for each Event
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, ReducerTimer)

} // namespace
} // namespace c10d::openreg
