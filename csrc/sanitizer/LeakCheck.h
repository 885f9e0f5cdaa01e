#pragma once

#include <map>
#include <vector>

#include "Shadow.h"

// The leak check: memory and handles that were made during the session and are still there.
namespace c10::openreg::sanitizer {

// A stream, an event, or another object of the device that the program made.
struct Handle {
  const char* name = nullptr; // the function that made it; a literal of the device library
  Site site = 0;              // the line of the call; of the last call if `openings` is more than 1
  size_t openings = 1;        // orIpcOpenMemHandle gives memory that is open already the same address again
};

// One report for each place that allocated device memory, pinned memory or handles which nobody has given back.
void find_leaks(Shadow& shadow, const std::map<const void*, Handle>& handles, std::vector<Report>& found);

} // namespace c10::openreg::sanitizer
