#pragma once

#include <openreg_activity.h>

#include "simulator/sanitizer/Site.h"

// Checks the red zones (MemoryCheck.h) when a kernel ends: those directly before and behind the blocks that the kernel
// used must be whole. A kernel that does not name its operands may have used any block, so all red zones are checked.
namespace c10::openreg::sanitizer {

// A kernel begins on this thread. `is_outermost`: the thread is in no other kernel.
void begin_watch(const orActivity& activity, bool is_outermost);

// The kernel ends. `site`: the line to report if the kernel was not launched, but began on this thread.
void end_watch(const orActivity& activity, Site site);

} // namespace c10::openreg::sanitizer
