#include "simulator/WaitCount.h"

#include <openreg_activity.h>

#include <atomic>
#include <string_view>

#include "simulator/RuntimeObserver.h"
#include "simulator/sanitizer/Site.h"

namespace c10::openreg {
namespace {

std::atomic<uint64_t> waits{0};

void count_wait(const orActivity* activity, void*) {
  const std::string_view name = activity->name;
  const bool is_wait = name == "orNoteWait" || name.ends_with("Synchronize"); // the others make a stream wait
  waits += activity->phase != orActivityEnd && is_wait && !sanitizer::is_internal_call() ? 1 : 0;
}

} // namespace

void count_waits() {
  observe_runtime(); // for is_internal_call()
  static const bool subscribed = [] {
    orSubscriber_t subscriber = nullptr;
    OPENREG_CHECK(orActivitySubscribe(&subscriber, &count_wait, nullptr, orActivitySynchronization));
    return true;
  }();
  static_cast<void>(subscribed);
}

uint64_t wait_count() {
  return waits;
}

} // namespace c10::openreg
