#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegMutex.h"
#include "simulator/sanitizer/CapturedGraphs.h"
#include "simulator/sanitizer/GrowthCheck.h"
#include "simulator/sanitizer/LeakCheck.h"
#include "simulator/sanitizer/PinnedSources.h"
#include "simulator/sanitizer/Shadow.h"

// The state of a session of the sanitizer, and the lock that guards the state. Session.cpp starts and stops sessions.
// Observer.cpp and RedZoneWatch.cpp change the state when the device reports an activity.
namespace c10::openreg::sanitizer {

enum CheckFlag : unsigned { kRace = 1, kInit = 2, kMemory = 4, kLeak = 8, kGraph = 16 };

// A free of memory that another stream may use. The free is a race unless the block's stream waits for `user` before
// the next allocation on the block's stream.
struct EarlyFree {
  Access free;
  Access user;
  size_t size;
  Site allocated;
};

// A kernel that was launched and has not ended, or the kernels of a replay.
struct Launch {
  Site site = 0;
  uint64_t order = 0; // the number of the last allocation before the launch
  size_t kernels = 0; // that have not ended
  // Copies of those blocks of the operands that have red zones; the copies have no `accesses`. They are copies because
  // a block may be freed before the kernel runs.
  std::vector<ShadowBlock> blocks{};
};

struct SessionState {
  unsigned checks = 0; // CheckFlag values, joined by |
  bool raises = false; // a finding stops work and raises sanitizer.Error; false: findings are only kept
  Clocks clocks;
  Shadow shadow;
  std::deque<Report> reports;
  // What identifies each report in `reports`: the sites of its first and last access, their names, and where the memory
  // was allocated. add_new_reports() uses it to recognise a report that the session has already.
  std::set<std::tuple<Site, Site, const void*, const void*, Site>> known;
  std::map<const void*, Handle> handles;
  std::vector<EarlyFree> early_frees;
  PinnedSources pinned_sources;
  GrowthCheck growth;
  Graphs graphs;
  uint64_t writes = 0;                 // how often blocks were written so far
  std::map<uint64_t, Launch> launches; // the kernels that have not ended, by their correlation id
  uint64_t order = 0;                  // how many blocks and handles were made so far
  uint64_t last_leak = UINT64_MAX;     // the order of the last one that can be a leak: stop_raising() sets it
  // The number of a finding about a queued kernel that has run. Any thread may raise it; nullopt: there is none.
  std::optional<size_t> found_late;
};

extern std::atomic<bool> running;        // a session observes the device
extern std::atomic<bool> watches_growth; // the session that runs has the check kLeak

extern ForkSafeMutex session_mutex;           // a leaf (OpenRegMutex.h); guards `session`
extern std::unique_ptr<SessionState> session; // the running session or the last one; null: there was none

// To be called with the lock held.
//
// Moves the reports that are new from `found` to the session, and empties `found`. If the session raises, and
// has_pending() is false, the first report of `found` stops the next work of the calling thread. This report is moved
// even if the session has the same report already.
void add_new_reports(std::vector<Report>& found);
// To be called with the lock held. As add_new_reports(), but the first report of `found` stops the next work of
// whichever thread begins work or waits for the device: the calling thread may be one of the device.
void add_late_reports(std::vector<Report>& found);
// To be called with the lock held, on a thread of the program. This thread takes the report of add_late_reports().
void take_late_report();

// To be called with the lock held.
//
// Decides whether early frees are races. Decides only those of blocks of the stream `actor`, or all if `actor` is
// nullopt. If the block's stream has still not waited for `user`, adds a report. Removes every early free that was
// decided.
void settle_early_frees(std::optional<Actor> actor, std::vector<Report>& found);

// A new session begins: findings of the previous one stop no work any more.
void forget_pending();
// Whether the calling thread's next work is to be stopped with a finding.
bool has_pending();
// The calling thread's call has made a node of a graph.
void note_captured_call(uintptr_t graph);
// Sets the function that throws a finding, given by its number. The thread whose work was stopped calls it.
OPENREG_API void set_raiser(void (*raise)(size_t finding));
// Throws the finding of has_pending(), through the function of set_raiser(). Returns if has_pending() is false.
void raise_pending();
// The calling thread has waited for the device: as raise_pending(), and throws also the report of add_late_reports().
void raise_late();

} // namespace c10::openreg::sanitizer
