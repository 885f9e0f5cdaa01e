#pragma once

#include <cstdint>
#include <string>

#include "../runtime/OpenRegException.h"

// A place in the program, as a number: taken for every kernel, so it must cost next to nothing, and put into words only
// for a report. There is no Python here: the bindings say how.
namespace c10::openreg::sanitizer {

using Site = uint32_t; // 0: not known

struct SiteSource {
  Site (*take)();                // of the calling thread, may take Python's interpreter lock
  std::string (*describe)(Site); // "train.py:12 in step"
};
OPENREG_API void set_site_source(SiteSource source);

Site current_site();
std::string describe(Site site); // "an unknown line" if that is not known

} // namespace c10::openreg::sanitizer
