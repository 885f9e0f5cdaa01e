#include "simulator/RuntimeObserver.h"

#include <openreg_faults.h>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegObserver.h"
#include "simulator/Poison.h"
#include "simulator/dry/Contents.h"
#include "simulator/dry/Undecided.h"
#include "simulator/restrictions/ModelRestrictions.h"
#include "simulator/sanitizer/MemoryCheck.h"
#include "simulator/sanitizer/SessionState.h"
#include "simulator/sanitizer/Site.h"

namespace c10::openreg {
namespace {

// Passes each notification on to the tools of the simulator. A tool that is off does nothing.
class Observer final : public RuntimeObserver {
  std::optional<size_t> before_alloc(DeviceIndex device, size_t size) override {
    const orError_t error = orRequestAllocation(device, size); // an injected fault
    if (error == orErrorMemoryAllocation) {
      return std::nullopt;
    }
    OPENREG_CHECK(error);
    return sanitizer::red_zone.load(std::memory_order_relaxed);
  }

  void after_segment_alloc(const void* address, size_t size) override {
    if (poison_is_on()) {
      poison(address, size);
    }
  }

  Reuse before_reuse(void* address, size_t size, Stream stream) override {
    // An address that outlives its tensor is found only as long as no other tensor has the memory.
    constexpr size_t kIdle = size_t{64} << 20;
    return {
        poison_is_on() ? queue_poison(address, size, stream) : nullptr,
        sanitizer::red_zone.load(std::memory_order_relaxed) != 0 ? kIdle : 0};
  }

  void before_new_tensor(caffe2::TypeMeta dtype) override {
    at::openreg::check_dtype(dtype);
  }

  void before_fallback(const OperatorHandle& op) override {
    at::openreg::check_kept(op);
  }

  void before_stream_from_pool(DeviceIndex device) override {
    OPENREG_CHECK(orRequestStream(device)); // can get an injected fault, as if the device made a stream each time
  }

  void after_host_wait() override {
    if (sanitizer::running) {
      sanitizer::raise_late();
    }
  }

  void after_failed_call() override {
    if (sanitizer::running) {
      sanitizer::raise_pending();
    }
    if (at::openreg::dry_limit() > 0) {
      at::openreg::raise_refusal();
    }
  }

  void begin_calls(CallKind kind) override {
    sanitizer::begin_calls(kind);
  }

  void end_calls(CallKind kind) override {
    sanitizer::end_calls(kind);
  }
};

const bool registered = [] {
  on_start([] { // not now: a program may set OPENREG_POISON after `import torch`
    if (poison_is_on()) {
      observe_runtime();
    }
  });
  return true;
}();

} // namespace

void observe_runtime() {
  static Observer observer; // trivially destructible, so that threads may use it until the process has ended
  set_observer(&observer);
}

} // namespace c10::openreg
