#pragma once

#include <cstddef>
#include <cstdint>

#include "openreg.h"
#include "stream.h"

namespace openreg {

// The random choices of orExecutionChaos: one sequence for the whole process.
void seedChaos(uint64_t seed);
uint64_t chaosSeed();

// A number below `count`.
size_t chaosChoice(size_t count);

// Sleeps for a random time, as openreg.h describes it.
void chaosPause();

// To be called when work is queued. Pinned memory that the work will only write gets 0xFF bytes at once, so that a host
// that reads it too early does not find the old contents, which may be what it expects. Pinned memory that pending work may
// still use gets none here: a copy poisons its destination, pinned or not, once more when it starts, and a kernel does not.
// Returns a number for forgetHostMemory(), which is called when the work is done; 0: nothing to forget.
uint64_t noteHostMemory(const Work& work);
void forgetHostMemory(uint64_t number);

// Fills every element with 0xFF bytes.
void poison(const orOperand& operand);

} // namespace openreg
