#pragma once

#include <cstdint>
#include <string>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegObserver.h"

// A line of the program, as a number. It is taken for every kernel, so it must cost little; only a report turns it into
// words. This file does not know Python: the bindings set the functions.
namespace c10::openreg::sanitizer {

using Site = uint32_t; // 0: not known

struct SiteSource {
  Site (*take)();                // the calling thread's line; may take Python's interpreter lock
  Site (*take_outer)();          // the same, outside of all modules (torch.nn.Module)
  std::string (*describe)(Site); // "train.py:12 in step"
};
OPENREG_API void set_site_source(SiteSource source);

Site current_site();
Site current_outer_site();

// ---- Calls to the device library that the runtime marks (CallKind in OpenRegObserver.h)

// UnderLock: current_site() is asked now, and its answer holds until end_calls(), because under a lock nobody may wait
// for Python. Internal: is_internal_call() is true, and the line is not known. A handle or memory that the runtime
// keeps is no leak of the program, and a fill of memory that the program has freed is no use of it.
void begin_calls(CallKind kind);
void end_calls(CallKind kind);
bool is_internal_call();

std::string describe(Site site); // "an unknown line" if it is not known

} // namespace c10::openreg::sanitizer
