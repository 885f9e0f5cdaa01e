#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include "simulator/sanitizer/GrowthCheck.h"
#include "simulator/sanitizer/Report.h"

// LITERALINCLUDE START: SESSION RULES
// The sanitizer. Between start() and stop() it observes the device (openreg_activity.h), and keeps its findings.
//
// Rules: there is one session at a time. Its lock is a leaf: a thread that holds it waits for nothing. So Python is
// asked for the line of the program before the lock is taken, and for the text of that line after the lock is released.
// If the session raises, a finding about work that begins stops that work. An access of the host cannot fail, so a
// finding about it stops the next work of the same thread, as does a finding about a kernel that the thread has
// computed itself. A finding about a queued kernel that has run is raised by whichever thread next begins work or waits
// for the device. Whether a free was too early is decided at the next allocation on the block's stream: a finding stops
// the next work of the thread that allocates.
// LITERALINCLUDE END: SESSION RULES
namespace c10::openreg::sanitizer {

// Starts a session. `checks`: values of CheckFlag (SessionState.h), joined by |. Waits for all devices. Memory that was
// allocated before the start counts as written, and never as a leak. Throws if a session runs.
OPENREG_API void start(unsigned checks, bool raises);
// Ends the session. If the session has the check kMemory, first waits until the streams that it has observed have run
// their work, for at most 10 seconds.
OPENREG_API void stop();
// From now on, findings are only kept, and nothing that is made counts as a leak.
OPENREG_API void stop_raising();

// A report, in words.
struct Finding {
  std::string kind;
  std::string text;
  struct Part {
    std::string name;   // who did it: an operator, a kernel, the host, an allocator, "the last reference" in a free
    std::string action; // "reads", "writes", "frees", "allocates", "makes"
    std::string stream; // "the default stream of openreg:0", "the host"; for leaks place_of(Access)
    std::string site;   // "train.py:12 in step"
    std::vector<int64_t> shape;
    size_t bytes;
  };
  std::vector<Part> parts;
};

// The findings from number `first` on, of the running session or of the last one. `settles`: decides now about tensors
// that were freed while another stream may use their memory, and not at the next allocation on the memory's stream.
// Such a free is a finding if that stream has still not waited for the other stream.
OPENREG_API std::vector<Finding> findings(size_t first, bool settles);

// Whether this process ends with the status 1 if it would end with 0. The first call decides the place among the
// functions of atexit(): those that are registered later run as usual, and those that were registered earlier do not
// run if the status changes.
OPENREG_API void fail_at_exit(bool fails);

// Adds findings for memory, streams, events and the other objects that Handle (LeakCheck.h) names: those that were made
// during the session and are not released yet.
OPENREG_API void look_for_leaks();

// The lines whose memory grows from round to round of a loop, if the session has the check kLeak. `owned`: addresses in
// memory that is no leak, such as parameters.
OPENREG_API std::vector<GrowthCheck::Growing> growing(const std::set<uintptr_t>& owned);

} // namespace c10::openreg::sanitizer
