#pragma once

#include <map>
#include <vector>

#include "Shadow.h"

// The leak check: memory and handles that were made during the session and are still there.
namespace c10::openreg::sanitizer {

// A stream, an event, or another object of the device that the program made.
struct Handle {
  const char* name; // the function that made it; a literal of the device library
  Site site;
};

// One report for each place that allocated device memory, pinned memory or handles which nobody has given back.
void find_leaks(Shadow& shadow, const std::map<const void*, Handle>& handles, std::vector<Report>& found);

} // namespace c10::openreg::sanitizer
