#include "simulator/sanitizer/SessionState.h"

#include <atomic>
#include <utility>

#include "simulator/ThreadOwned.h"
#include "simulator/sanitizer/RaceCheck.h"

namespace c10::openreg::sanitizer {

std::atomic<bool> running{false};
std::atomic<bool> watches_growth{false};
ForkSafeMutex session_mutex;
std::unique_ptr<SessionState> session;

namespace {

std::atomic<uint64_t> session_number{0};
std::atomic<void (*)(size_t)> raiser{nullptr}; // the bindings set it: throws sanitizer.Error for a finding

// A finding that the calling thread has not raised yet. The thread's next work does not run; the finding is thrown
// instead. It is ignored in a later session.
struct Pending {
  uint64_t session_number = 0;
  size_t finding = 0;
  bool exists = false;
  uintptr_t graph = 0; // whose capture the finding has stopped a call of; 0: none
};
thread_local constinit ThreadOwned<Pending> pending;

} // namespace

void forget_pending() {
  ++session_number;
}

bool has_pending() {
  return pending->exists && pending->session_number == session_number.load(std::memory_order_relaxed);
}

void note_captured_call(uintptr_t graph) {
  if (has_pending()) {
    pending->graph = graph;
  } else if (pending->graph != graph) {
    pending->graph = 0;
  }
}

namespace {

// The stopped call has left its branch of the graph without the join at its end. The end of the capture says so, and
// must not hide the finding.
bool ends_stopped_capture() {
  return pending->graph != 0 && pending->session_number == session_number.load(std::memory_order_relaxed) &&
         orPeekAtLastError() == orErrorStreamCaptureUnjoined;
}

} // namespace

void take_late_report() {
  if (session->found_late && session->raises && !has_pending()) {
    *pending = {session_number, *session->found_late, true};
    session->found_late.reset();
  }
}

void raise_late() {
  {
    const std::lock_guard lock(session_mutex);
    take_late_report();
  }
  raise_pending();
}

void raise_pending() {
  if (has_pending() || ends_stopped_capture()) {
    if (!std::exchange(pending->exists, false)) {
      pending->graph = 0;
    }
    orGetLastError(); // clears the error with which the device library refused the work
    if (const auto raise = raiser.load()) {
      raise(pending->finding);
    }
  }
}

namespace {

// Moves the new reports to the session. `stops()`: whether a finding may be chosen now that will be thrown in place of
// work. `stop(finding)` chooses this finding.
template <class Stops, class Stop>
void add_reports(std::vector<Report>& found, const Stops& stops, const Stop& stop) {
  for (Report& each : found) {
    const Access& first = each.accesses.front();
    const Access& last = each.accesses.back();
    const bool is_new = session->known.emplace(first.site, last.site, first.name, last.name, each.allocated).second;
    const bool is_stop = session->raises && stops();
    if (is_new || is_stop) {
      if (is_stop) {
        stop(session->reports.size());
      }
      session->reports.push_back(std::move(each));
    }
  }
  found.clear();
}

} // namespace

void add_new_reports(std::vector<Report>& found) {
  add_reports(found, [] { return !has_pending(); }, [](size_t finding) { *pending = {session_number, finding, true}; });
}

void add_late_reports(std::vector<Report>& found) {
  add_reports(found, [] { return !session->found_late; }, [](size_t finding) { session->found_late = finding; });
}

void settle_early_frees(std::optional<Actor> actor, std::vector<Report>& found) {
  std::erase_if(session->early_frees, [&](const EarlyFree& each) {
    if (actor && each.free.actor != *actor) {
      return false;
    }
    if (!session->clocks.is_before(each.user.actor, each.user.time, each.free.actor)) {
      found.push_back(make_early_free(each.free, each.user, each.size, each.allocated));
    }
    return true;
  });
}

void set_raiser(void (*raise)(size_t finding)) {
  raiser = raise;
}

} // namespace c10::openreg::sanitizer
