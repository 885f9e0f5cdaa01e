#pragma once

#include <cstdint>

// Philox4x32-10: the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
// 3" (SC11). A call maps a key of 64 bits and a counter of 128 bits to four words. Here the key is the seed. The lower
// half of the counter is the number of the call within its thread, and the upper half is the number of the thread.
namespace at::openreg {

// Where the numbers of a launch begin.
struct PhiloxStart {
  uint64_t seed;
  uint64_t call; // of each thread
};

constexpr int kLanes = 16; // the threads that are computed together
constexpr int kWords = 4;  // of one call

using PhiloxWords = uint32_t[kWords][kLanes];

// The words of the call number `call` of the launch, for the threads `first_thread` to `first_thread` + kLanes - 1.
void draw_words(const PhiloxStart& start, uint64_t call, uint64_t first_thread, PhiloxWords& words);

} // namespace at::openreg
