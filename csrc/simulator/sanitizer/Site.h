#pragma once

#include <cstdint>
#include <string>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegObserver.h"

// A line of the program, as a number. It is taken for every kernel, so it must cost little; only a report turns it into
// words. This file does not know Python: the bindings set the functions.
namespace c10::openreg::sanitizer {

using Site = uint32_t; // 0: not known

struct Sites {
  Site line = 0;  // the calling thread's
  Site outer = 0; // the same, outside of all modules (torch.nn.Module); only if it was asked for
};

struct SiteSource {
  Sites (*take)(bool with_outer); // may take Python's interpreter lock
  std::string (*describe)(Site);  // "train.py:12 in step"
};
OPENREG_API void set_site_source(SiteSource source);

Sites current_sites(bool with_outer);
inline Site current_site() {
  return current_sites(false).line;
}

// ---- Calls to the device library that the runtime marks (CallKind in OpenRegObserver.h)

// UnderLock: current_site() is asked now, and its answer holds until end_calls(), because under a lock nobody may wait
// for Python. Internal: is_internal_call() is true, and the line is not known. A handle or memory that the runtime
// keeps is no leak of the program, and a fill of memory that the program has freed is no use of it.
void begin_calls(CallKind kind);
void end_calls(CallKind kind);
bool is_internal_call();

std::string describe(Site site); // "an unknown line" if it is not known

} // namespace c10::openreg::sanitizer
