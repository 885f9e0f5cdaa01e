#pragma once

#include <map>
#include <vector>

#include "simulator/sanitizer/Shadow.h"

// The leak check: memory and handles that were made during the session and are still there.
namespace c10::openreg::sanitizer {

// What the program made with a function of the device library itself: a stream, an event, memory of orMalloc() or
// orMallocHost(), or opened IPC memory. A block of PyTorch's allocators is no handle.
struct Handle {
  const char* name = nullptr; // the function that made it; a literal of the device library
  Site site = 0;              // the line of the call; of the last call if `openings` is more than 1
  size_t openings = 1;        // the calls that made it and are not undone; orIpcOpenMemHandle may make it twice
  uint64_t order = 0;         // its place among all that the session saw being made, as ShadowBlock::order
};

// The reports about memory and handles that nobody has given back: one for each line of the program and each device or
// pinned memory, and one for each line and each function that made handles. What was made after `last`, an order, is none.
void find_leaks(
    Shadow& shadow, const std::map<const void*, Handle>& handles, uint64_t last, std::vector<Report>& found);

} // namespace c10::openreg::sanitizer
