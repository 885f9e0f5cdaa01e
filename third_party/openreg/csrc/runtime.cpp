#include "runtime.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <string>

#include "device_memory.h"
#include "hooks.h"
#include "pinned_memory.h"
#include "scheduler.h"
#include "segfault.h"
#include "stream.h"
#include "windows.h"

namespace openreg {
namespace {

enum class State { notStarted, started, badFork };

std::atomic<State> state{State::notStarted};
std::atomic<const Environment*> theEnvironment{nullptr};
DeviceDescription theDescription = ownDevices();           // guarded by startMutex
std::atomic<const orDeviceIdentity*> theIdentity{nullptr}; // null: openreg's own
std::mutex startMutex;                                     // guards the start, and the first read of the environment

// If another thread is starting the simulator, fork() waits for it. So a child finds the simulator either started or
// not started, and startMutex free. If the simulator was started before the fork, the child never takes any other lock.
[[gnu::constructor]] void registerForkHandlers() {
  pthread_atfork(
      [] { startMutex.lock(); },
      [] { startMutex.unlock(); },
      [] {
        startMutex.unlock();
        if (state == State::started) {
          state = State::badFork;
          orInlineFlag = false;
          forgetWindows();
          forgetStreams();
        }
      });
}

} // namespace

const orDeviceIdentity& identity() {
  static constexpr orDeviceIdentity kOwn{};
  const orDeviceIdentity* const chosen = theIdentity.load(std::memory_order_acquire);
  return chosen ? *chosen : kOwn;
}

const Environment& environment() {
  const Environment* known = theEnvironment.load(std::memory_order_acquire);
  if (known == nullptr) {
    const std::lock_guard lock(startMutex);
    known = theEnvironment.load(std::memory_order_relaxed);
    if (known == nullptr) {
      // Never deleted: atexit handlers and destructors may still use it.
      known = new Environment(readEnvironment(theDescription, identity()));
      theEnvironment.store(known, std::memory_order_release);
    }
  }
  return *known;
}

orError_t start() {
  const State now = state.load(std::memory_order_acquire);
  if (now == State::started) [[likely]] {
    return orSuccess;
  }
  if (now == State::badFork) {
    return failVerbatim(
        orErrorInitializationError,
        "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the "
        "'spawn' start method");
  }
  const Environment& asked = environment();
  if (!asked.error.empty()) {
    return fail(orErrorInvalidConfiguration, "%s", asked.error.c_str());
  }
  const int visibleCount = static_cast<int>(asked.visible.size());
  if (visibleCount == 0) {
    return fail(
        orErrorNoDevice,
        "no device is visible: %s hides all %d; unset it to see them",
        asked.visibleVariable,
        asked.deviceCount);
  }
  if (orError_t error = checkCall(kAtStart, -1); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(startMutex);
  if (state == State::started) {
    return orSuccess;
  }
  if (const std::string error = schedule != nullptr ? schedule->configure() : ""; !error.empty()) {
    return fail(orErrorInvalidConfiguration, "%s", error.c_str());
  }
  if (orError_t error = reserveWindows(visibleCount, asked.deviceMemory); error != orSuccess) {
    return error;
  }
  createDeviceMemory(visibleCount, asked.deviceMemory);
  createDefaultStreams(visibleCount);
  sharePinnedMemoryAtFork(); // before the scheduler, whose handler is then called first: no kernel runs meanwhile
  startScheduler(asked.executionMode, asked.chaosSeed);
  installSegfaultHandler();
  state.store(State::started, std::memory_order_release);
  return orSuccess;
}

bool describeDevices(const DeviceDescription& description) {
  const std::lock_guard lock(startMutex);
  if (state != State::notStarted) {
    return false;
  }
  theDescription = description;
  theEnvironment.store(nullptr, std::memory_order_release);
  return true;
}

bool isStarted() {
  return state.load(std::memory_order_acquire) == State::started;
}

bool isInBadFork() {
  return state.load(std::memory_order_relaxed) == State::badFork;
}

} // namespace openreg

using namespace openreg;

void orSetDeviceIdentity(const orDeviceIdentity* chosen) {
  openreg::theIdentity.store(chosen, std::memory_order_release);
}

bool orIsInBadFork(void) {
  return openreg::isInBadFork();
}
