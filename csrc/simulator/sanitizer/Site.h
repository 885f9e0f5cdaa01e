#pragma once

#include <cstdint>
#include <string>

#include "runtime/OpenRegException.h"

// A line of the program, as a number. It is taken for every kernel, so it must cost little; only a report turns it into
// words. This file does not know Python: the bindings set the functions.
namespace c10::openreg::sanitizer {

using Site = uint32_t; // 0: not known

struct SiteSource {
  Site (*take)();                // the calling thread's line; may take Python's interpreter lock
  std::string (*describe)(Site); // "train.py:12 in step"
};
OPENREG_API void set_site_source(SiteSource source);

Site current_site();
std::string describe(Site site); // "an unknown line" if it is not known

} // namespace c10::openreg::sanitizer
