#pragma once

#include <cstddef>
#include <cstdint>

#include "openreg.h"
#include "stream.h"

// The parts of orExecutionChaos (see orExecutionMode): random choices, random delays, and poison, which is 0xFF bytes
// in memory that is not written yet.
namespace openreg {

// The random choices of orExecutionChaos: one sequence for the whole process.
void seedChaos(uint64_t seed);
uint64_t chaosSeed();

// A random number below `count`.
size_t chaosChoice(size_t count);

// Sleeps for a random time: see orExecutionChaos.
void chaosPause();

// To be called when work is queued. If the work will write pinned memory without reading it, this function fills that
// memory with 0xFF bytes at once. A host that reads the memory too early then does not find the old contents, which may
// happen to be right. Pinned memory that pending work may still use is left alone here. (A copy poisons its destination
// once more when it starts; a kernel does not.)
//
// Returns a number for forgetHostMemory(), which must be called when the work is done. 0: there is nothing to forget.
uint64_t noteHostMemory(const Work& work);
void forgetHostMemory(uint64_t number);

// Fills all elements with 0xFF bytes.
void poison(const orOperand& operand);

} // namespace openreg
