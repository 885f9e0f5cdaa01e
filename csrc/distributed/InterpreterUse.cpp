#include "distributed/InterpreterUse.h"

#include <openreg.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace c10d::openreg {
namespace {

constexpr std::chrono::seconds kExit{10}; // the limit of the waits while the process exits

struct InterpreterUses {
  std::mutex mutex;
  size_t count = 0; // how many InterpreterUse objects exist that are allowed
  std::condition_variable none;
  std::optional<std::chrono::steady_clock::time_point> ended; // when end_interpreter_uses() returned
};

// Never deleted: a thread may end its use while the process exits.
InterpreterUses& interpreter_uses() {
  static auto* const made = new InterpreterUses();
  return *made;
}

} // namespace

InterpreterUse::InterpreterUse()
    : allowed_([] {
        InterpreterUses& uses = interpreter_uses();
        const std::lock_guard lock(uses.mutex);
        uses.count += uses.ended ? 0 : 1;
        return !uses.ended;
      }()) {}

InterpreterUse::~InterpreterUse() {
  if (allowed_) {
    InterpreterUses& uses = interpreter_uses();
    const std::lock_guard lock(uses.mutex);
    --uses.count;
    uses.none.notify_all();
  }
}

void end_interpreter_uses() {
  if (orIsInBadFork()) { // a child has none of the threads, and may not wait for the lock
    return;
  }
  InterpreterUses& uses = interpreter_uses();
  std::unique_lock lock(uses.mutex);
  uses.none.wait_for(lock, kExit, [&] { return uses.count == 0; });
  uses.ended = std::chrono::steady_clock::now();
}

void outlast_interpreter() {
  InterpreterUses& uses = interpreter_uses();
  std::unique_lock lock(uses.mutex);
  const auto end = uses.ended.value() + kExit;
  lock.unlock();
  std::this_thread::sleep_until(end);
}

} // namespace c10d::openreg
