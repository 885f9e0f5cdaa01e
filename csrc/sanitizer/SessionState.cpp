#include "SessionState.h"

#include <atomic>
#include <utility>

#include "RaceCheck.h"
#include "Session.h"

namespace c10::openreg::sanitizer {

ForkSafeMutex session_mutex;
std::unique_ptr<SessionState> session;

namespace {

std::atomic<uint64_t> generation{0}; // the number of the session
std::atomic<void (*)(size_t)> raiser{nullptr};

// The finding that the calling thread's next work is to be stopped with.
struct Pending {
  uint64_t generation = 0;
  size_t finding = 0;
  bool exists = false;
};
thread_local Pending pending;

} // namespace

void forget_pending() {
  ++generation;
}

bool has_pending() {
  return pending.exists && pending.generation == generation.load(std::memory_order_relaxed);
}

void raise_pending() {
  if (has_pending()) {
    pending.exists = false;
    orGetLastError();
    if (const auto raise = raiser.load()) {
      raise(pending.finding);
    }
  }
}

void keep(std::vector<Report>& found) {
  for (Report& each : found) {
    const Access& first = each.accesses.front();
    const Access& last = each.accesses.back();
    if (!session->known.emplace(first.site, last.site, first.name, last.name).second) {
      continue;
    }
    if (session->raises && !has_pending()) {
      pending = {generation, session->reports.size(), true};
    }
    session->reports.push_back(std::move(each));
  }
  found.clear();
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
