#include "runtime.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "device_memory.h"
#include "fault.h"
#include "injection.h"
#include "scheduler.h"
#include "stream.h"
#include "windows.h"

namespace openreg {
namespace {

enum class State { notStarted, started, badFork };

std::atomic<State> state{State::notStarted};
std::atomic<const Environment*> theEnvironment{nullptr};
std::atomic<bool> cudaVariables{false}; // see orReadCudaVariables
std::mutex startMutex;                  // guards the two changes from "not yet" to "done" above

// fork() waits for a start that is under way in another thread, so that a child finds the simulator either started or
// not, never half, and startMutex free. No other lock is ever taken in a child of a started process.
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

const Environment& environment() {
  const Environment* known = theEnvironment.load(std::memory_order_acquire);
  if (known == nullptr) {
    const std::lock_guard lock(startMutex);
    known = theEnvironment.load(std::memory_order_relaxed);
    if (known == nullptr) {
      known = new Environment(
          readEnvironment(cudaVariables)); // never deleted: atexit handlers and destructors may still call
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
  if (orError_t error = checkFaults(orFaultAtStart, -1); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(startMutex);
  if (state == State::started) {
    return orSuccess;
  }
  if (orError_t error = reserveWindows(visibleCount, asked.deviceMemory); error != orSuccess) {
    return error;
  }
  createDeviceMemory(visibleCount, asked.deviceMemory);
  createDefaultStreams(visibleCount);
  startScheduler(asked.executionMode, asked.chaosSeed);
  installFaultHandler();
  state.store(State::started, std::memory_order_release);
  return orSuccess;
}

bool isStarted() {
  return state.load(std::memory_order_acquire) == State::started;
}

bool isInBadFork() {
  return state.load(std::memory_order_relaxed) == State::badFork;
}

} // namespace openreg

void orReadCudaVariables(void) {
  openreg::cudaVariables = true;
}

bool orIsInBadFork(void) {
  return openreg::isInBadFork();
}
