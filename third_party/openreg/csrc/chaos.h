#pragma once

#include <cstddef>
#include <cstdint>

namespace openreg {

// The random choices of orExecutionChaos: one sequence for the whole process.
void seedChaos(uint64_t seed);
uint64_t chaosSeed();

// A number below `count`.
size_t chaosChoice(size_t count);

// Sleeps for a random time, as openreg.h describes it.
void chaosPause();

} // namespace openreg
